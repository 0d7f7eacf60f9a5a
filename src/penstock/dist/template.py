"""The template of a warm start: imports what ranks need, forks every rank, and exits (`penstock.dist.warm_start`).

It is a program of its own, `python -m penstock.dist.template SETTINGS MODULE ARGUMENTS...`: no other process loads it.
"""

import gc
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import msgspec

from penstock.dist.parent import die_with_parent, started_by
from penstock.dist.warm_start import UNSAFE_CODE, RankSettings, TemplateSettings


def main(path: Path, module: str, arguments: Sequence[str]) -> None:
    """Import, fork and exit. It returns in the ranks only, when their module has run to its end."""
    die_with_parent(started_by())
    settings = msgspec.json.decode(path.read_bytes(), type=TemplateSettings)
    for name in settings.preload:
        with suppress(Exception):  # the rank that needs it reports the error
            import_module(name)
    if _count_threads() > 1:
        os._exit(UNSAFE_CODE)
    gc.collect()
    gc.freeze()  # a collection in a rank would copy every page that it shares with the others
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # otherwise every rank would write what is buffered
    for number, rank in enumerate(settings.ranks):
        if not os.fork():
            _become(number, rank, settings)
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return
    os._exit(0)


def _count_threads() -> int:
    """The number of threads that a fork would interrupt. Libraries such as OpenBLAS end theirs before a fork."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task"))


def _become(number: int, rank: RankSettings, settings: TemplateSettings) -> None:
    """Make this fork a rank."""
    os.setsid()
    with Path(settings.pids_file).open("a") as file:
        file.write(f"{number} {os.getpid()}\n")
    os.close(settings.pipe)
    for path, stream in ((rank.stdout, sys.stdout), (rank.stderr, sys.stderr)):
        if path is not None:
            with Path(path).open("ab") as output:
                os.dup2(output.fileno(), stream.fileno())
    os.environ.update(rank.environment)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
