"""A rank that is told to end (SIGTERM) may say first what it was doing.

Torchrun ends all ranks a moment after one of them has gone. Those that miss it find out by themselves, and have a table
to tell, if they are let.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

LAST_WORDS_S = 6.0
"""So long a rank has to say what it misses, once it is told to end."""


def end_late(words: Callable[[], str]) -> Callable[[], None]:
    """From now on SIGTERM ends this process so much later, with these words; gives what undoes that.

    A handler that is there already stays. Only the main thread may set one, so in others nothing is changed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return _nothing

    def start_timer(_number: int, _frame: FrameType | None) -> None:
        timer = threading.Timer(LAST_WORDS_S, _end, (words,))
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, start_timer)
    return partial(_undo, start_timer)


def _end(words: Callable[[], str]) -> None:
    sys.stderr.write(words())
    sys.stderr.flush()
    os._exit(128 + signal.SIGTERM)


def _undo(handler: Callable[[int, FrameType | None], None]) -> None:
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is handler:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _nothing() -> None:
    pass
