"""Gaps: the times in which a device is idle, cut into parts that each have one reason.

A device waits for the last dependency of its next action (`Timeline.cause`). While a transfer is under way, it is the
reason. Before that, the transfer itself waits: for the link, which another transfer occupies, for a device that blocks
at another message, or for the action that makes its payload. That action may have waited in turn. So the reasons follow
from going back in time from the end of the gap to its start. The parts of a gap cover it without holes or overlaps.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from penstock.program import NONE
from penstock.timeline import Timeline

MAX_PARTS = 16
"""The rest of a longer chain of reasons is one part with the reason EARLIER."""


class Reason(IntEnum):
    """Why a device is idle during a part of a gap."""

    TRANSFER = 0
    """The transfer that it waits for is under way."""
    WORK = 1
    """The device that makes what it waits for is computing."""
    LINK = 2
    """The transfer that it waits for cannot start, because another one occupies the link or the interface."""
    DONE = 3
    """It has finished, and waits for the iteration to end."""
    UNKNOWN = 4
    """No cause in the program."""
    EARLIER = 5
    """The chain of reasons is longer than `MAX_PARTS`."""
    BLOCKED = 6
    """The transfer that it waits for cannot start, because a device at one of its ends blocks at another message."""


class Part(NamedTuple):
    """A part of a gap with one reason."""

    reason: Reason
    start_s: float
    end_s: float
    action: int
    """The transfer, the compute action, or the last action of the iteration; NONE where there is no cause. The last one
    of several in a row."""
    num: int = 1
    """The number of actions of that device, or of transfers on that link, in a row."""


class Gap(NamedTuple):
    """A time in which a device is idle, before the action `before` (NONE: after its last action)."""

    device: int
    start_s: float
    end_s: float
    before: int
    parts: tuple[Part, ...]
    """In order of time."""


def find_gaps(timeline: Timeline) -> list[Gap]:
    """Find all gaps of the devices that compute.

    Args:
        timeline: A simulated or measured timeline.

    Returns:
        The gaps, device by device, in order of time.
    """
    program, iteration_s = timeline.program, timeline.iteration_s
    chain = _Chain(timeline)
    last = int(np.argmax(timeline.end_s)) if len(timeline.end_s) else NONE
    gaps = []
    for device in range(len(program.devices)):
        begin = int(program.offsets[device])
        compute = np.flatnonzero(timeline.is_compute[begin : int(program.offsets[device + 1])]) + begin
        if not len(compute):
            continue
        free = 0.0
        for action, start, end in zip(
            compute.tolist(), timeline.start_s[compute].tolist(), timeline.end_s[compute].tolist(), strict=True
        ):
            if start > free:
                gaps.append(Gap(device, free, start, action, chain.reasons(action, free, start)))
            free = max(free, end)
        if free < iteration_s:
            gaps.append(Gap(device, free, iteration_s, NONE, (Part(Reason.DONE, free, iteration_s, last),)))
    return gaps


class _Chain:
    """The arrays of a timeline as lists, which are faster to index one by one."""

    def __init__(self, timeline: Timeline) -> None:
        messages = timeline.program.plan.messages
        self.blocks = messages is not None and not messages.is_overlapped
        self.start = timeline.start_s.tolist()
        self.end = timeline.end_s.tolist()
        self.cause = timeline.cause.tolist()
        self.is_compute = timeline.is_compute.tolist()
        self.device = timeline.program.device_of.tolist()
        self.peer = timeline.program.peer.tolist()

    def reasons(self, action: int, begin: float, end: float) -> tuple[Part, ...]:
        """The parts of the gap before a compute action."""
        parts: list[Part] = []
        at, current = end, action
        while at > begin:
            cause = self.cause[current]
            if len(parts) == MAX_PARTS - 1:
                parts.append(Part(Reason.EARLIER, begin, at, cause))
                break
            if cause == NONE:
                parts.append(Part(Reason.UNKNOWN, begin, at, NONE))
                break
            # The cause ended earlier: what follows has no reason. Measured timelines have such holes.
            ended = max(begin, self.end[cause])
            if ended < at:
                parts.append(Part(Reason.UNKNOWN, ended, at, NONE))
                at = ended
            since = max(begin, min(self.start[cause], at))
            if since < at:
                self._add(parts, Part(self._reason(current, cause), since, at, cause))
                at = since
            current = cause
        return tuple(reversed(parts))

    def _reason(self, waiting: int, cause: int) -> Reason:
        if self.is_compute[cause]:
            return Reason.WORK
        if self.is_compute[waiting]:
            return Reason.TRANSFER
        return Reason.BLOCKED if self.blocks and self._location(waiting) != self._location(cause) else Reason.LINK

    def _add(self, parts: list[Part], part: Part) -> None:
        """Append a part; actions of one device in a row are one part, and so are transfers on one link."""
        last = parts[-1] if parts else None
        if (
            last is not None
            and last.reason == part.reason
            and self._location(last.action) == self._location(part.action)
        ):
            parts[-1] = last._replace(start_s=part.start_s, num=last.num + part.num)
        else:
            parts.append(part)

    def _location(self, action: int) -> tuple[int, int]:
        return self.device[action], self.peer[action]
