"""What a timeline must keep to before it can be shown: a file may say anything."""

import numpy as np

from penstock.errors import InputError
from penstock.report.names import shown_name
from penstock.timeline import Timeline

MAX_SECONDS = 1e15


def check_showable(timeline: Timeline, *, max_seconds: float = MAX_SECONDS) -> None:
    """Refuse times that run backwards or are beyond all measure, and sizes that are not numbers."""
    start, end = timeline.start_s, timeline.end_s
    # Written so that a NaN, which is neither smaller nor larger than anything, counts as wrong.
    wrong = ~((start >= 0) & (start <= end) & (end <= max_seconds))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InputError(
            f"it runs from {start[place]} s to {end[place]} s",
            where=_where(timeline, place),
            hint=f"An action starts at 0 or later, and ends between its start and {max_seconds:,.0f} s.",
        )
    for values, what in (
        (timeline.num_bytes, "bytes moved"),
        (timeline.memory_during, "memory"),
        (timeline.memory_after, "memory"),
    ):
        wrong = ~np.isfinite(values)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise InputError(f"{what}: {values[place]} is not a size", where=_where(timeline, place))


def _where(timeline: Timeline, place: int) -> str:
    return f"timeline, {shown_name(timeline.program.name(place))}"
