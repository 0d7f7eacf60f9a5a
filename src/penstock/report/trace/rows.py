"""The rows of a trace: for each device its compute actions, its sends to each other device, and its reductions.

Viewers require that slices of a row do not overlap. The bytes of transfers on a link do not overlap, but a slice ends
when its transfer has arrived, one latency later, so that the next one may begin before. Slices that would overlap get
more rows ("to d1 #2").
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program import NONE, Program, is_collective, is_compute, is_send


class TraceRow(NamedTuple):
    """A row with its process and thread numbers."""

    process_id: int
    thread_id: int
    name: str


class TraceRows(NamedTuple):
    """All rows in display order, and the row of each action; NONE for receives, which are not drawn."""

    rows: list[TraceRow]
    row_of: Ints


def trace_rows(program: Program, start_ns: Ints, end_ns: Ints) -> TraceRows:
    """Assign rows to all actions but receives, whose transfers are drawn with their sends."""
    rows: list[TraceRow] = []
    row_of = np.full(program.num_actions, NONE, dtype=np.int64)
    for device, name, actions in _row_actions(program):
        in_time = actions[np.lexsort((end_ns[actions], start_ns[actions]))]
        lane = lanes(start_ns[in_time], end_ns[in_time])
        row_of[in_time] = lane + len(rows)
        for number in range(int(lane.max()) + 1):
            # Some viewers treat a thread with the number of its process as the main thread, so all numbers differ.
            thread_id = len(program.devices) + len(rows) + 1
            label = name if number == 0 else f"{name} #{number + 1}"
            rows.append(TraceRow(device + 1, thread_id, label))
    return TraceRows(rows, row_of)


def lanes(start: Ints, end: Ints) -> Ints:
    """Give each interval the lowest free lane, so that no two overlap in a lane. Sorted by start, then end.

    >>> lanes(np.array([0, 1, 2, 4]), np.array([2, 4, 3, 5])).tolist()
    [0, 1, 0, 0]
    """
    lane_of = np.zeros(len(start), dtype=np.int64)
    if (start[1:] >= end[:-1]).all():
        return lane_of
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for index, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        # If no lane is free, all existing lanes are busy, and their number is the index of a new one.
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (finish, lane))
        lane_of[index] = lane
    return lane_of


def _row_actions(program: Program) -> Iterator[tuple[int, str, Ints]]:
    """Device, row name and actions of each row, before overlapping slices are moved to more rows."""
    for device, (first, last) in enumerate(
        zip(program.offsets[:-1].tolist(), program.offsets[1:].tolist(), strict=True)
    ):
        actions = np.arange(first, last)
        kind, peer = program.kind[first:last], program.peer[first:last]
        if is_compute(kind).any():
            yield device, "compute", actions[is_compute(kind)]
        sends = is_send(kind)
        for target in np.unique(peer[sends]).tolist():
            yield device, f"to {program.devices[target]}", actions[sends & (peer == target)]
        if is_collective(kind).any():
            yield device, "reductions", actions[is_collective(kind)]
