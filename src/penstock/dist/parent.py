"""Processes that end with the process that started them, however that ended."""

import ctypes
import os
import signal
import threading
import time

STARTED_BY = "PENSTOCK_STARTED_BY"
"""The environment variable with the id of the process that started a run."""
CHECK_PARENT_S = 1.0
_PR_SET_PDEATHSIG = 1


def started_by() -> int:
    """The id of the process that started this run; 0 if no launcher of Penstock did."""
    return int(os.environ.get(STARTED_BY, "0"))


def exit_with_parent() -> None:
    """End this process when the one that started the run has ended, within about a second.

    It works for ranks that an agent such as torchrun has started, too.
    """
    parent = started_by()

    def watch() -> None:
        while True:
            time.sleep(CHECK_PARENT_S)
            try:
                os.kill(parent, 0)
            except ProcessLookupError:
                os._exit(1)

    if parent:
        threading.Thread(target=watch, name="penstock-parent", daemon=True).start()


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
