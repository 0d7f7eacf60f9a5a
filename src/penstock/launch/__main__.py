"""`python -m penstock.launch --nproc-per-node N -m MODULE ARGUMENTS...`: run N ranks of a module on this host.

It replaces torchrun on one host, without an open port: ranks rendezvous through a directory of their user. A module
joins with `penstock.dist.join_process_group`. `penstock train --dry-run` prints such a command.
"""

import sys
from argparse import REMAINDER, ArgumentParser

from penstock.dist import Launcher, RankModule, run_dir, sigterm_as_ctrl_c


def main() -> int:
    """Run the ranks; the exit code is that of the rank that failed first."""
    parser = ArgumentParser(prog="python -m penstock.launch", description="Run ranks of a Python module on this host.")
    parser.add_argument("--nproc-per-node", type=int, required=True, metavar="N", help="number of ranks")
    parser.add_argument("-m", dest="module", required=True, metavar="MODULE", help="the module that each rank runs")
    parser.add_argument("arguments", nargs=REMAINDER, help="arguments of the module")
    options = parser.parse_args()
    module = RankModule(options.module, options.arguments)
    with run_dir("penstock-launch-") as folder, Launcher() as launcher:
        try:
            with sigterm_as_ctrl_c():
                launcher.start_ranks(module, options.nproc_per_node, folder, OMP_NUM_THREADS="1")
                launcher.wait()
        except KeyboardInterrupt:
            return 130
        code = launcher.exit_code
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
