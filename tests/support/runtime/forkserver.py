"""Processes that begin with torch imported: forked from one that has done so once, as it takes each some seconds."""

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

PRELOADED = [
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "penstock.runtime.pipeline",
    "penstock.runtime.verify.reference",
]


def warm_context() -> ForkServerContext:
    """Where processes come from. Torch reads these settings when it is imported."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


Function = Callable[[str, int], None]
"""The whole life of a process: it is given the file where all meet, and its rank."""
Start = Callable[[Function, int], "list[Life]"]


class Life:
    """A process that runs one function from its start to its end, as it would run a script."""

    def __init__(self, function: Function, meeting: Path, rank: int) -> None:
        self._told = meeting.with_name(f"{meeting.name}.told{rank}")
        self._process = warm_context().Process(target=_live, args=(function, str(meeting), rank, str(self._told)))
        self._process.start()

    def wait(self, timeout_s: float) -> int | None:
        """How it has ended; None if it has not."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def told(self) -> str:
        """What it has written to its standard error."""
        return self._told.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _live(function: Function, meeting: str, rank: int, told: str) -> None:
    to = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(to, sys.stderr.fileno())
    code = 0
    try:
        function(meeting, rank)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:
        # Torch has put its own in there, which names the rank.
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
