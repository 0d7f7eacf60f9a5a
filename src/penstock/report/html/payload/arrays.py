"""A timeline as the arrays of a web page: some 30 bytes an action.

Receives are left out, since their transfers are drawn with their sends. Times are whole numbers of a unit that is a
power of ten of seconds, so that what touches in the timeline touches in the picture. References to actions, devices and
micro-batches count from 1, and 0 is none.
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program import NONE, RECV_KINDS, Kind
from penstock.report.analysis import find_gaps, memory_strip
from penstock.report.html.payload.packing import Packer
from penstock.report.trace import messages
from penstock.timeline import Timeline

_MOST = 4_000_000_000
"""Times fit into 32 bits."""


class Arrays(NamedTuple):
    """What the page needs of a timeline, beside names."""

    unit_s: float
    devices: tuple[int, ...]
    """Places in the program of the devices that are shown: all that have something to do."""
    begins: list[int]
    """Where the actions of each of them begin, and the end."""
    gap_begins: list[int]
    last: int
    """The action that the iteration ends with; NONE where there is none."""
    where: dict[str, tuple[int, int, str]]
    text: str


def time_unit(iteration_s: float) -> float:
    """The smallest power of ten, from a nanosecond up, in which an iteration can be counted with 32 bits.

    >>> time_unit(0.25), time_unit(5.0), time_unit(0.0)
    (1e-09, 1e-08, 1e-09)
    """
    power = -9
    while iteration_s > _MOST * 10.0**power:
        power += 1
    return float(f"1e{power}")


def timeline_arrays(timeline: Timeline) -> Arrays:
    """Pack a timeline."""
    program = timeline.program
    unit = time_unit(timeline.iteration_s)
    start, end = (np.rint(times / unit).astype(np.int64) for times in (timeline.start_s, timeline.end_s))
    shown = np.flatnonzero(~np.isin(program.kind, RECV_KINDS))
    new_place = np.full(program.num_actions + 1, NONE, dtype=np.int64)
    new_place[shown] = np.arange(len(shown))
    for send, receive in messages(program):
        new_place[receive] = new_place[send]
    used = np.unique(program.device_of)
    new_device = np.full(len(program.devices) + 1, NONE, dtype=np.int64)
    new_device[used] = np.arange(len(used))

    packer = Packer()
    packer.integers("kind", program.kind[shown])
    packer.integers("stage", program.stage[shown])
    packer.integers("microbatch", program.microbatch[shown] + 1)
    packer.integers("start", start[shown])
    packer.integers("end", end[shown])
    packer.integers("cause", new_place[timeline.cause[shown]] + 1)
    strip = memory_strip(timeline)
    packer.floats("memoryDuring", strip.during)
    packer.floats("memoryAfter", strip.after)
    moved = shown[program.kind[shown] > Kind.STEP]
    packer.integers("peer", new_device[program.peer[moved]] + 1)
    packer.floats("bytes", timeline.num_bytes[moved])
    gap_device = _add_gaps(packer, timeline, unit, new_place)
    return Arrays(
        unit_s=unit,
        devices=tuple(int(device) for device in used),
        begins=[*np.searchsorted(program.device_of[shown], used).tolist(), len(shown)],
        gap_begins=[*np.searchsorted(gap_device, used).tolist(), len(gap_device)],
        last=int(new_place[np.argmax(timeline.end_s)]) if len(shown) else NONE,
        where=packer.where,
        text=packer.text,
    )


def _add_gaps(packer: Packer, timeline: Timeline, unit: float, new_place: Ints) -> Ints:
    """Gaps and their parts; the parts of a gap follow each other, so that their ends say it all."""
    gaps = find_gaps(timeline)
    parts = [part for gap in gaps for part in gap.parts]

    def ticks(seconds: list[float]) -> Ints:
        return np.rint(np.array(seconds) / unit).astype(np.int64)

    packer.integers("gapStart", ticks([gap.start_s for gap in gaps]))
    packer.integers("gapBefore", new_place[np.array([gap.before for gap in gaps], dtype=np.int64)] + 1)
    packer.integers("gapParts", np.array([len(gap.parts) for gap in gaps], dtype=np.int64))
    packer.integers("partReason", np.array([part.reason for part in parts], dtype=np.int64))
    packer.integers("partEnd", ticks([part.end_s for part in parts]))
    packer.integers("partAction", new_place[np.array([part.action for part in parts], dtype=np.int64)] + 1)
    packer.integers("partNum", np.array([part.num for part in parts], dtype=np.int64))
    return np.array([gap.device for gap in gaps], dtype=np.int64)
