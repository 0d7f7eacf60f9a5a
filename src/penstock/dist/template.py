"""The template of a warm start: imports what ranks need, forks every rank, and exits (`penstock.dist.warm_start`).

It is a program of its own, `python -m penstock.dist.template SETTINGS MODULE ARGUMENTS...`: no other process loads it.
As `python -m penstock.dist.template --serve SETTINGS` it stays, and forks ranks whenever it is asked to.
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
from penstock.dist.processes import lead_group
from penstock.dist.warm_start import UNSAFE_CODE, ForkRequest, RankSettings, ServerSettings, TemplateSettings


def main(path: Path, module: str, arguments: Sequence[str]) -> None:
    """Import, fork and exit. It returns in the ranks only, when their module has run to its end."""
    die_with_parent(started_by())
    settings = msgspec.json.decode(path.read_bytes(), type=TemplateSettings)
    _import(settings.preload)
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


def serve(path: Path) -> None:
    """Import, and fork ranks for every request until the launcher has ended. It returns in the ranks only."""
    die_with_parent(started_by())
    settings = msgspec.json.decode(path.read_bytes(), type=ServerSettings)
    _import(settings.preload)
    if _count_threads() > 1:
        os._exit(UNSAFE_CODE)
    gc.collect()
    gc.freeze()
    os.write(settings.answers, b"ready\n")
    requests = os.fdopen(settings.requests, "rb", buffering=0)
    while line := requests.readline():
        request = msgspec.json.decode(Path(line.decode().rstrip("\n")).read_bytes(), type=ForkRequest)
        # Ranks are forked by a process that exits, so that the launcher becomes their parent.
        child = os.fork()
        if not child:
            pids = []
            for rank in request.ranks:
                pid = os.fork()
                if not pid:
                    os.close(settings.requests)
                    os.close(settings.answers)
                    _become_requested(rank)
                    sys.argv = [request.module, *request.arguments]
                    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
                    return
                lead_group(pid)
                pids.append(pid)
            Path(request.pids_file).write_text("".join(f"{number} {pid}\n" for number, pid in enumerate(pids)))
            os._exit(0)
        os.waitpid(child, 0)
        os.write(settings.answers, b"done\n")
    os._exit(0)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with suppress(Exception):  # the rank that needs it reports the error
            import_module(name)


def _become_requested(rank: RankSettings) -> None:
    """Make this fork a rank with an environment of its own."""
    lead_group(0)
    _redirect(rank)
    os.environ.clear()
    os.environ.update(rank.environment)


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
    _redirect(rank)
    os.environ.update(rank.environment)


def _redirect(rank: RankSettings) -> None:
    for path, stream in ((rank.stdout, sys.stdout), (rank.stderr, sys.stderr)):
        if path is not None:
            with Path(path).open("ab") as output:
                os.dup2(output.fileno(), stream.fileno())


if __name__ == "__main__" and sys.argv[1] == "--serve":
    serve(Path(sys.argv[2]))
elif __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
