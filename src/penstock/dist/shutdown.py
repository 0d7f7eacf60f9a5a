"""How processes end: at SIGTERM, with a last message, or at once.

Torchrun and Penstock's launcher send SIGTERM to all ranks shortly after one of them has exited. The remaining ranks
detect the lost connection themselves a moment later, and the first of them prints the status table. So a rank delays
SIGTERM, which gives it time to report its own error before it exits.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import NoReturn

from penstock.dist.parent import exit_with_parent

SIGTERM_DELAY_S = 6.0
"""Time between SIGTERM and the exit of the process."""
STOPPED_CODES = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a process that SIGTERM has ended, at once or delayed."""


def prepare_rank() -> None:
    """Make this process a rank: it ends with the process that started it, and delays SIGTERM to report its error."""
    exit_with_parent()
    delay_sigterm(lambda: "")


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
        timer = threading.Timer(SIGTERM_DELAY_S, lambda: exit_with_message(last_message(), 128 + signal.SIGTERM))
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, start_timer)
    return partial(_restore, start_timer)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that no process of a run is left running."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_signals(ask: Callable[[str], None]) -> Iterator[None]:
    """Take the first SIGTERM, and every SIGUSR1, as a wish to end soon. The next SIGTERM does what it did before.

    Args:
        ask: Called with the name of the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}

    def stop(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, before[signal.SIGTERM])
        ask(signal.Signals(number).name)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_stop_signals() -> None:
    """Ignore SIGTERM and SIGUSR1 in a rank whose launcher handles them.

    A batch system may send a signal to all processes of a job. The launcher kills ranks that must end.
    """
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def exit_now(code: int) -> NoReturn:
    """Exit at once, after all output is written: torch's own clean-up at exit could wait for ranks that have ended."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def exit_with_message(message: str, code: int) -> NoReturn:
    """Exit at once with a last message on stderr. Any thread may call this, while others hold standard output."""
    try:
        sys.stderr.write(message)
        sys.stderr.flush()
    finally:
        os._exit(code)


def _restore(handler: Callable[[int, FrameType | None], None]) -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _nothing() -> None:
    pass
