"""A timeline as the arrays of a web page: some 35 bytes per action.

Receives are left out, because their transfers are drawn with their sends. Times are whole multiples of a unit that is a
power of ten of seconds, so that consecutive actions also touch in the drawing. References to devices and micro-batches,
and those to actions that may be missing, count from 1; 0 stands for none.
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program import NONE, Ties, find_needs, is_compute, is_recv, match_messages
from penstock.report.analysis import find_gaps, memory_strip
from penstock.report.html.payload.packing import Packer
from penstock.timeline import Timeline, critical_path

_MAX_TICKS = 4_000_000_000
"""Times fit into 32 bits."""


class Arrays(NamedTuple):
    """The packed arrays of a timeline, with their layout."""

    unit_s: float
    devices: tuple[int, ...]
    """Indices of the devices with actions, which are all that the page shows."""
    begins: list[int]
    """The first action of each of them, and the number of actions."""
    gap_begins: list[int]
    layout: dict[str, tuple[int, int, str]]
    text: str


def time_unit(iteration_s: float) -> float:
    """The smallest power of ten, from a nanosecond up, that counts an iteration in 32 bits.

    >>> time_unit(0.25), time_unit(5.0), time_unit(0.0)
    (1e-09, 1e-08, 1e-09)
    """
    power = -9
    while iteration_s > _MAX_TICKS * 10.0**power:
        power += 1
    return float(f"1e{power}")


def timeline_arrays(timeline: Timeline, ties: Ties | None = None) -> Arrays:
    """Pack a timeline with its gaps, its dependencies and its critical path.

    `ties` are the stages behind each all-reduce of shared parameters, where they are known.
    """
    program = timeline.program
    unit = time_unit(timeline.iteration_s)
    start, end = (np.rint(times / unit).astype(np.int64) for times in (timeline.start_s, timeline.end_s))
    shown = np.flatnonzero(~is_recv(program.kind))
    new_index = np.full(program.num_actions + 1, NONE, dtype=np.int64)
    new_index[shown] = np.arange(len(shown))
    send, receive = match_messages(program)
    new_index[receive] = new_index[send]
    used = np.unique(program.device_of)
    new_device = np.full(len(program.devices) + 1, NONE, dtype=np.int64)
    new_device[used] = np.arange(len(used))

    packer = Packer()
    packer.integers("kind", program.kind[shown])
    packer.integers("stage", program.stage[shown])
    packer.integers("microbatch", program.microbatch[shown] + 1)
    packer.integers("start", start[shown])
    packer.integers("end", end[shown])
    strip = memory_strip(timeline)
    packer.floats("memoryDuring", strip.during)
    packer.floats("memoryAfter", strip.after)
    moved = shown[~is_compute(program.kind[shown])]
    packer.integers("peer", new_device[program.peer[moved]] + 1)
    packer.floats("bytes", timeline.num_bytes[moved])
    graph = find_needs(program, timeline.cause, ties)
    packer.integers("numNeeds", np.diff(graph.begin)[shown])
    packer.integers("needs", new_index[graph.needs])
    packer.integers("path", new_index[np.array(critical_path(timeline), dtype=np.int64)])
    gap_device = _add_gaps(packer, timeline, unit, new_index)
    return Arrays(
        unit_s=unit,
        devices=tuple(int(device) for device in used),
        begins=[*np.searchsorted(program.device_of[shown], used).tolist(), len(shown)],
        gap_begins=[*np.searchsorted(gap_device, used).tolist(), len(gap_device)],
        layout=packer.layout,
        text=packer.text,
    )


def _add_gaps(packer: Packer, timeline: Timeline, unit: float, new_index: Ints) -> Ints:
    """Pack the gaps and the ends of their parts, which follow each other. Returns the device of each gap."""
    gaps = find_gaps(timeline)
    parts = [part for gap in gaps for part in gap.parts]

    def ticks(seconds: list[float]) -> Ints:
        return np.rint(np.array(seconds) / unit).astype(np.int64)

    packer.integers("gapStart", ticks([gap.start_s for gap in gaps]))
    packer.integers("gapBefore", new_index[np.array([gap.before for gap in gaps], dtype=np.int64)] + 1)
    packer.integers("gapParts", np.array([len(gap.parts) for gap in gaps], dtype=np.int64))
    packer.integers("partReason", np.array([part.reason for part in parts], dtype=np.int64))
    packer.integers("partEnd", ticks([part.end_s for part in parts]))
    packer.integers("partAction", new_index[np.array([part.action for part in parts], dtype=np.int64)] + 1)
    packer.integers("partNum", np.array([part.num for part in parts], dtype=np.int64))
    return np.array([gap.device for gap in gaps], dtype=np.int64)
