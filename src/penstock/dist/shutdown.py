"""Delayed SIGTERM: a rank gets time to report its own error before it exits.

Torchrun sends SIGTERM to all ranks shortly after one of them has exited. The remaining ranks detect the lost connection
themselves a moment later, and the first of them prints the status table.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

SIGTERM_DELAY_S = 6.0
"""Time between SIGTERM and the exit of the process."""


def delay_sigterm(last_message: Callable[[], str]) -> Callable[[], None]:
    """Make SIGTERM end this process `SIGTERM_DELAY_S` seconds later.

    An existing handler stays. Only the main thread can set a handler, so a call from another thread changes nothing.

    Args:
        last_message: Returns the text that is written to stderr before the exit.

    Returns:
        A function that restores the default handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return _nothing

    def start_timer(_number: int, _frame: FrameType | None) -> None:
        timer = threading.Timer(SIGTERM_DELAY_S, _exit, (last_message,))
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, start_timer)
    return partial(_restore, start_timer)


def _exit(last_message: Callable[[], str]) -> None:
    sys.stderr.write(last_message())
    sys.stderr.flush()
    os._exit(128 + signal.SIGTERM)


def _restore(handler: Callable[[int, FrameType | None], None]) -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _nothing() -> None:
    pass
