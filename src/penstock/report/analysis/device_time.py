"""Where devices' time goes: jobs by kind, waits by what they are for. All devices at once, for programs of any size.

The waits are those of `timeline.summary.waits`, added up, and those after a device's last job.
"""

from typing import NamedTuple

import numpy as np

from penstock.program import NONE, Kind
from penstock.timeline import Timeline


class Waiting(NamedTuple):
    """All waits of all devices for one kind of thing."""

    kind: Kind | None
    """The send or reduction that was waited for; None where nothing in the program held the device back."""
    seconds: float
    transfer_s: float
    """How much of that the transfers took themselves; the rest was for what came before them."""


class TimeUse(NamedTuple):
    """What the used devices did, in seconds, added up over all of them."""

    total_s: float
    """The iteration, times the devices."""
    work_s: dict[Kind, float]
    """By kind of job; only kinds that took time."""
    waits: tuple[Waiting, ...]
    """Before jobs, the longest sum first."""
    after_s: float
    """After each device's last job."""

    @property
    def waiting_s(self) -> float:
        """Everything that is not work."""
        return self.total_s - sum(self.work_s.values())


def time_use(timeline: Timeline) -> TimeUse:
    """Add up a timeline."""
    program = timeline.program
    compute = np.flatnonzero(timeline.is_compute)
    if not len(compute):
        return TimeUse(0.0, {}, (), 0.0)
    start, end = timeline.start_s[compute], timeline.end_s[compute]
    device = program.device_of[compute]
    is_first = np.append(True, device[1:] != device[:-1])
    is_last = np.append(is_first[1:], True)
    sums = np.bincount(program.kind[compute], weights=end - start, minlength=len(Kind))
    free = np.where(is_first, 0.0, np.append(0.0, end[:-1]))
    held = np.flatnonzero(start > free)
    cause = timeline.cause[compute[held]]
    known = cause != NONE
    began = np.where(known, timeline.start_s[cause], start[held])
    is_message = known & (program.kind[cause] >= Kind.SEND_F)
    # Clocks of measured devices may disagree, and a transfer seem to begin after what waited for it.
    transfer = np.where(is_message, np.maximum(start[held] - np.maximum(began, free[held]), 0.0), 0.0)
    # One place more than there are kinds, for waits without a cause, or behind a job and not a message.
    reason = np.where(is_message, program.kind[cause], len(Kind)).astype(np.int64)
    waited = np.bincount(reason, weights=start[held] - free[held], minlength=len(Kind) + 1)
    moved = np.bincount(reason, weights=transfer, minlength=len(Kind) + 1)
    waits = [
        Waiting(Kind(kind) if kind < len(Kind) else None, float(waited[kind]), float(moved[kind]))
        for kind in np.flatnonzero(waited).tolist()
    ]
    return TimeUse(
        total_s=timeline.iteration_s * int(is_first.sum()),
        work_s={Kind(kind): float(sums[kind]) for kind in np.flatnonzero(sums).tolist()},
        waits=tuple(sorted(waits, key=lambda wait: -wait.seconds)),
        after_s=float((timeline.iteration_s - end[is_last]).sum()),
    )
