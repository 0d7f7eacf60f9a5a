"""Processes that start with torch imported: forked from a server that imports it once, as it takes some seconds."""

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
    "penstock.runtime.verify.plain_reference",
]


def warm_context() -> ForkServerContext:
    """The context that starts processes. Torch reads these variables when it is imported."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


Function = Callable[[str, int], None]
"""The main function of a rank: its arguments are the file of the ranks' store, and the rank."""
Start = Callable[[Function, int], "list[RankProcess]"]


class RankProcess:
    """A process that runs one function from start to exit, as it would run a script."""

    def __init__(self, function: Function, store: Path, rank: int) -> None:
        self._stderr = store.with_name(f"{store.name}.stderr{rank}")
        self._process = warm_context().Process(target=_main, args=(function, str(store), rank, str(self._stderr)))
        self._process.start()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code; None if the process still runs."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def stderr(self) -> str:
        """What it wrote to its standard error."""
        return self._stderr.read_text()

    def kill(self) -> None:
        """Kill and reap the process."""
        self._process.kill()
        self._process.join()


def _main(function: Function, store: str, rank: int, stderr: str) -> None:
    descriptor = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, sys.stderr.fileno())
    code = 0
    try:
        function(store, rank)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException as error:
        # Torch installs a hook that names the rank.
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
