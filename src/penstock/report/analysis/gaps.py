"""Why each gap exists: every stretch in which a device does not work, cut into parts that each have one reason.

A device that waits, waits for one thing: the last of all that its next job needs (`Timeline.cause`). While that was on
its way, the transfer is the reason. Before that, the transfer itself waited: for the link, which another one held, or
for the job that makes what it carries. That job in turn may have waited. So the reasons are found by going back in
time from the end of the gap until its start is reached; the parts of a gap cover it without holes or overlaps.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from penstock.program import NONE, Kind
from penstock.timeline import Timeline

MAX_PARTS = 16
"""Chains of reasons that are longer end in one part that says so."""


class Reason(IntEnum):
    """What a device waited for during a part of a gap."""

    TRANSFER = 0
    """What it needs was on its way."""
    WORK = 1
    """The device that makes what it needs was at work."""
    LINK = 2
    """What it needs could not set out, as another transfer held the link or the interface."""
    DONE = 3
    """It has nothing left to do; others have."""
    UNKNOWN = 4
    """Nothing that the program knows of."""
    EARLIER = 5
    """The chain of reasons goes on further back."""


class Part(NamedTuple):
    """A part of a gap with one reason."""

    reason: Reason
    start_s: float
    end_s: float
    action: int
    """The transfer, the job, or what the iteration's end waits for; NONE where nothing is known. Of several jobs or
    transfers in a row the last."""
    num: int = 1
    """How many jobs of that device, or transfers of that link, in a row."""


class Gap(NamedTuple):
    """A device that does not work: from when to when, before which action (NONE: after its last), and why."""

    device: int
    start_s: float
    end_s: float
    before: int
    parts: tuple[Part, ...]
    """In the order of time."""


def find_gaps(timeline: Timeline) -> list[Gap]:
    """All gaps of the devices that work at all, device by device in the order of time."""
    program, end_of_all = timeline.program, timeline.iteration_s
    chain = _Chain(timeline)
    last = int(np.argmax(timeline.end_s)) if len(timeline.end_s) else NONE
    found = []
    for device in range(len(program.devices)):
        begin = int(program.offsets[device])
        jobs = np.flatnonzero(timeline.is_compute[begin : int(program.offsets[device + 1])]) + begin
        if not len(jobs):
            continue
        free = 0.0
        for job, start, end in zip(
            jobs.tolist(), timeline.start_s[jobs].tolist(), timeline.end_s[jobs].tolist(), strict=True
        ):
            if start > free:
                found.append(Gap(device, free, start, job, chain.reasons(job, free, start)))
            free = max(free, end)
        if free < end_of_all:
            found.append(Gap(device, free, end_of_all, NONE, (Part(Reason.DONE, free, end_of_all, last),)))
    return found


class _Chain:
    """The arrays of a timeline as lists, which are quicker to walk along."""

    def __init__(self, timeline: Timeline) -> None:
        self.start = timeline.start_s.tolist()
        self.end = timeline.end_s.tolist()
        self.cause = timeline.cause.tolist()
        self.kind = timeline.program.kind.tolist()
        self.device = timeline.program.device_of.tolist()
        self.peer = timeline.program.peer.tolist()

    def reasons(self, job: int, begin: float, end: float) -> tuple[Part, ...]:
        """The parts of the gap before a job, found backwards and turned round."""
        parts: list[Part] = []
        at, current = end, job
        while at > begin:
            cause = self.cause[current]
            if len(parts) == MAX_PARTS - 1:
                parts.append(Part(Reason.EARLIER, begin, at, cause))
                break
            if cause == NONE:
                parts.append(Part(Reason.UNKNOWN, begin, at, NONE))
                break
            # What was over before is not what it waited for in between: measured timelines have such holes.
            over = max(begin, self.end[cause])
            if over < at:
                parts.append(Part(Reason.UNKNOWN, over, at, NONE))
                at = over
            since = max(begin, min(self.start[cause], at))
            if since < at:
                self._add(parts, Part(self._reason(current, cause), since, at, cause))
                at = since
            current = cause
        return tuple(reversed(parts))

    def _reason(self, waiting: int, cause: int) -> Reason:
        if self.kind[cause] <= Kind.STEP:
            return Reason.WORK
        return Reason.TRANSFER if self.kind[waiting] <= Kind.STEP else Reason.LINK

    def _add(self, parts: list[Part], part: Part) -> None:
        """Jobs of one device in a row are one part, and so are transfers of one link."""
        last = parts[-1] if parts else None
        if last is not None and last.reason == part.reason and self._place(last.action) == self._place(part.action):
            parts[-1] = last._replace(start_s=part.start_s, num=last.num + part.num)
        else:
            parts.append(part)

    def _place(self, action: int) -> tuple[int, int]:
        return self.device[action], self.peer[action]
