"""Transfers that fail, and waits for them, each with a deadline: what went wrong is said in words of the run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from penstock.errors import PeerLost, RunError, RuntimeTimeout

Tell = Callable[[], str]
"""Says who is doing what with whom, for messages to people."""


def wait_for(work: Any, timeout_s: float, tell: Tell) -> None:
    """Wait until a transfer has ended, at most so long."""
    try:
        work.wait(timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise failure(error, tell, timeout_s) from error


@contextmanager
def failing_in_words(tell: Tell) -> Iterator[None]:
    """Around calls of torch.distributed other than waits."""
    try:
        yield
    except RuntimeError as error:
        raise failure(error, tell) from error


def failure(error: RuntimeError, tell: Tell, timeout_s: float | None = None) -> RunError:
    """What torch.distributed raised, as what it means."""
    text = str(error)
    if "imed out" in text or "imeout" in text:
        within = "in time" if timeout_s is None else f"within {timeout_s:g} s"
        return RuntimeTimeout(
            f"{tell()}: nothing came of it {within}",
            hint="See what the other rank did last; if it is only slow, give a longer timeout.",
        )
    first = text.partition("\n")[0].partition(". ")[0]
    return PeerLost(
        f"{tell()}: the connection is lost ({first[:200]})",
        hint="The other rank has ended, or cannot be reached: see what it said last, if anything.",
    )
