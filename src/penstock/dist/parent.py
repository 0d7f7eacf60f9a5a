"""Processes that end with the process that started them, however that ended."""

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

STARTED_BY = "PENSTOCK_STARTED_BY"
"""The environment variable with the id of the process that started a run."""
CHECK_PARENT_S = 1.0
_PR_SET_PDEATHSIG = 1


def started_by() -> int:
    """The id of the process that started this run; 0 if no launcher of Penstock did."""
    return int(os.environ.get(STARTED_BY, "0"))


def exit_with_parent() -> None:
    """End this process when the one that started the run has ended.

    It works for ranks that an agent such as torchrun has started, too.
    """
    parent = started_by()
    if parent:
        wait = _exit_waiter(parent)
        threading.Thread(target=lambda: (wait(), os._exit(1)), name="penstock-parent", daemon=True).start()


def _exit_waiter(process: int) -> Callable[[], None]:
    """Return a function that waits for the end of a process, which need not be a child of this one."""
    if not hasattr(os, "pidfd_open"):
        return lambda: _poll(process)
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return lambda: None
    except OSError:  # an old kernel
        return lambda: _poll(process)
    # It becomes readable with the exit, even while nobody takes the exit code.
    exits = select.poll()
    exits.register(descriptor, select.POLLIN)

    def wait() -> None:
        exits.poll()

    return wait


def _poll(process: int) -> None:
    with suppress(ProcessLookupError):
        while True:
            time.sleep(CHECK_PARENT_S)
            os.kill(process, 0)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent exits. Linux only.

    It works across PID namespaces, and without a thread, so the process may fork.

    Args:
        parent: The parent's id, as the parent sees it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() not in (parent, 0):  # 0: the parent is outside of this process's PID namespace
        os._exit(1)  # the parent has exited already
