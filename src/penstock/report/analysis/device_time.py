"""The devices' time, summed over all devices: busy time by kind of action, idle time by what the devices waited for.

The waits are those of `timeline.summary.waits`, summed, and the idle time after each device's last action.
"""

from typing import NamedTuple

import numpy as np

from penstock.program import NONE, Kind, is_compute
from penstock.timeline import Timeline


class WaitSum(NamedTuple):
    """The waits of all devices for one kind of transfer."""

    kind: Kind | None
    """The send or reduction that the devices waited for; None where the program has no cause for the wait."""
    seconds: float
    transfer_s: float
    """The part of the wait during which the transfer was under way. The rest is for what came before the transfer."""


class TimeUse(NamedTuple):
    """Seconds of all used devices together."""

    total_s: float
    """The iteration times the number of devices."""
    work_s: dict[Kind, float]
    """Busy time by kind of compute action; only kinds that took time."""
    waits: tuple[WaitSum, ...]
    """Waits before compute actions, the longest sum first."""
    after_s: float
    """Idle time after each device's last action, until the iteration ends."""

    @property
    def waiting_s(self) -> float:
        """All idle time."""
        return self.total_s - sum(self.work_s.values())


def time_use(timeline: Timeline) -> TimeUse:
    """Sum the busy and idle time of a timeline.

    Args:
        timeline: A simulated or measured timeline.

    Returns:
        The sums over all devices that compute; all zero for a timeline without compute actions.
    """
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
    is_message = known & ~is_compute(program.kind[cause])
    # Clocks of measured devices may disagree, so that a transfer seems to begin after the action that waits for it.
    transfer = np.where(is_message, np.maximum(start[held] - np.maximum(began, free[held]), 0.0), 0.0)
    # One bin more than there are kinds, for waits without a cause and waits for an action that is not a transfer.
    reason = np.where(is_message, program.kind[cause], len(Kind)).astype(np.int64)
    waited = np.bincount(reason, weights=start[held] - free[held], minlength=len(Kind) + 1)
    moved = np.bincount(reason, weights=transfer, minlength=len(Kind) + 1)
    waits = [
        WaitSum(Kind(kind) if kind < len(Kind) else None, float(waited[kind]), float(moved[kind]))
        for kind in np.flatnonzero(waited).tolist()
    ]
    return TimeUse(
        total_s=timeline.iteration_s * int(is_first.sum()),
        work_s={Kind(kind): float(sums[kind]) for kind in np.flatnonzero(sums).tolist()},
        waits=tuple(sorted(waits, key=lambda wait: -wait.seconds)),
        after_s=float((timeline.iteration_s - end[is_last]).sum()),
    )
