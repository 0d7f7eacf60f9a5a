"""`penstock cluster probe --local N`: runs the same command as N ranks on this host."""

import os
import signal
import sys

from penstock.dist import Launcher, RankModule, run_dir, sigterm_as_ctrl_c, stderr_path
from penstock.launch.hosts import default_threads

RANK_PRELOAD = ("penstock.cli.main", "penstock.probe")


def run_local(num_ranks: int) -> int:
    """Run this command again as ranks of this host.

    Rank 0 writes to this process's output. If it ends without an error message, the output of the other ranks follows.

    Returns:
        The exit code of the rank that failed first, or 0.
    """
    module = RankModule("penstock", sys.argv[1:], RANK_PRELOAD)
    threads = str(default_threads(num_ranks))
    with run_dir("penstock-probe-") as folder, Launcher() as launcher:
        try:
            with sigterm_as_ctrl_c():
                launcher.start_ranks(
                    module,
                    num_ranks,
                    folder,
                    stderr=lambda rank: stderr_path(folder, rank) if rank else None,
                    OMP_NUM_THREADS=threads,
                )
                launcher.wait()
        except KeyboardInterrupt:
            return 130
        first = launcher.processes[0]
        if launcher.exit_code and (first.code in (0, -signal.SIGKILL) or first.was_stopped):
            for rank in range(1, num_ranks):
                sys.stderr.write(stderr_path(folder, rank).read_text(errors="replace"))
        return abs(launcher.exit_code)


def is_rank() -> bool:
    """Whether this process is a rank that torchrun or `run_local` has started."""
    return "RANK" in os.environ
