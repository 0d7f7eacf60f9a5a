"""Translation of errors of torch.distributed into errors of Penstock, and waits with a deadline."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from penstock.dist.rank_status import status_board
from penstock.errors import PeerLost, RunError, RuntimeTimeout

Describe = Callable[[], str]
"""Returns which rank does what with which peer. Called only when an error or a status is worded."""


def wait_for(work: Any, timeout_s: float, describe: Describe) -> None:
    """Block until a work handle of torch.distributed has completed.

    Raises:
        RuntimeTimeout: It has not completed after `timeout_s` seconds.
        PeerLost: The connection to the peer is lost.
    """
    board = status_board()
    board.begin_wait(describe)
    try:
        work.wait(timedelta(seconds=timeout_s))
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise translate_error(error, describe, timeout_s) from error
    board.end_wait()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device has too little memory. Torch is not imported for it."""
    return type(error).__name__ == "OutOfMemoryError"


@contextmanager
def translate_errors(describe: Describe, timeout_s: float | None = None) -> Iterator[None]:
    """Translate the errors of torch.distributed inside the context, as `wait_for` does for waits."""
    try:
        with status_board().waiting(describe):
            yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise translate_error(error, describe, timeout_s) from error


def translate_error(error: RuntimeError, describe: Describe, timeout_s: float | None = None) -> RunError:
    """Return the RuntimeTimeout or PeerLost that an error of torch.distributed stands for."""
    text = str(error)
    if "imed out" in text or "imeout" in text:
        after = "" if timeout_s is None else f" after {timeout_s:g} s"
        return RuntimeTimeout(
            f"{describe()}: timed out{after}",
            hint="Check what the other rank did last. If it is only slow, use a longer timeout.",
        )
    first = text.partition("\n")[0].partition(". ")[0]
    return PeerLost(
        f"{describe()}: the connection is lost ({first[:200]})",
        hint="The other rank has exited or is unreachable. Check its output.",
    )
