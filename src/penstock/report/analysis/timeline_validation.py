"""Validation of timelines before they are drawn, because a timeline file can contain any numbers."""

import numpy as np

from penstock.errors import InputError
from penstock.printable_text import escape_text
from penstock.timeline import Timeline

MAX_SECONDS = 1e15


def validate_timeline(timeline: Timeline, *, max_seconds: float = MAX_SECONDS) -> None:
    """Check that a timeline can be drawn.

    Args:
        timeline: A timeline, possibly read from a file.
        max_seconds: The latest time that the caller can draw.

    Raises:
        InputError: An action ends before it starts or after `max_seconds`, or a size is not finite.
    """
    start, end = timeline.start_s, timeline.end_s
    # Comparisons with NaN are false, so this form rejects NaN as well.
    wrong = ~((start >= 0) & (start <= end) & (end <= max_seconds))
    if wrong.any():
        action = int(np.argmax(wrong))
        raise InputError(
            f"the action runs from {start[action]} s to {end[action]} s",
            where=_where(timeline, action),
            hint=f"An action must start at 0 s or later and end between its start and {max_seconds:,.0f} s.",
        )
    for values, what in (
        (timeline.num_bytes, "bytes moved"),
        (timeline.memory_during, "memory"),
        (timeline.memory_after, "memory"),
    ):
        wrong = ~np.isfinite(values)
        if wrong.any():
            action = int(np.argmax(wrong))
            raise InputError(f"{what}: {values[action]} is not a valid number of bytes", where=_where(timeline, action))


def _where(timeline: Timeline, action: int) -> str:
    return f"timeline, {escape_text(timeline.program.name(action))}"
