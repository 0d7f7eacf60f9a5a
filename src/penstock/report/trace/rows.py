"""On which row of a trace each action is drawn. A device has compute, what it sends to each other, and reductions.

Viewers want slices of a row to follow each other. Transfers of a link do keep to that while their bytes pass, but a
slice ends when its transfer has arrived, one latency later; so the next one may begin before. Those that would overlap
get rows of their own ("to d1 #2").
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.program import NONE, Kind, Program


class TraceRow(NamedTuple):
    """A row, with the numbers by which a trace knows it."""

    process_id: int
    thread_id: int
    name: str


class TraceRows(NamedTuple):
    """All rows in the order in which they are shown, and for each action its row; NONE for what is not drawn."""

    rows: list[TraceRow]
    row_of: Ints


def trace_rows(program: Program, start_ns: Ints, end_ns: Ints) -> TraceRows:
    """Rows for all actions but receives, whose transfers are drawn with their sends."""
    rows: list[TraceRow] = []
    row_of = np.full(program.num_actions, NONE, dtype=np.int64)
    for device, name, actions in _themes(program):
        in_time = actions[np.lexsort((end_ns[actions], start_ns[actions]))]
        lane = lanes(start_ns[in_time], end_ns[in_time])
        row_of[in_time] = lane + len(rows)
        for number in range(int(lane.max()) + 1):
            # Some viewers take a thread with the number of its process for the main one: so no number is there twice.
            thread_id = len(program.devices) + len(rows) + 1
            shown = name if number == 0 else f"{name} #{number + 1}"
            rows.append(TraceRow(device + 1, thread_id, shown))
    return TraceRows(rows, row_of)


def lanes(start: Ints, end: Ints) -> Ints:
    """A lane for each stretch so that none overlap in a lane: the lowest that is free. Sorted by start, then end.

    >>> lanes(np.array([0, 1, 2, 4]), np.array([2, 4, 3, 5])).tolist()
    [0, 1, 0, 0]
    """
    found = np.zeros(len(start), dtype=np.int64)
    if (start[1:] >= end[:-1]).all():
        return found
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for place, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        # With none free, all lanes there are are busy, so their number is the next one's.
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (finish, lane))
        found[place] = lane
    return found


def _themes(program: Program) -> Iterator[tuple[int, str, Ints]]:
    """Device by device what belongs on one row, if nothing overlaps: device, name, actions."""
    for device, (first, last) in enumerate(
        zip(program.offsets[:-1].tolist(), program.offsets[1:].tolist(), strict=True)
    ):
        actions = np.arange(first, last)
        kind, peer = program.kind[first:last], program.peer[first:last]
        if (kind <= Kind.STEP).any():
            yield device, "compute", actions[kind <= Kind.STEP]
        is_send = (kind >= Kind.SEND_F) & (kind <= Kind.SEND_P)
        for target in np.unique(peer[is_send]).tolist():
            yield device, f"to {program.devices[target]}", actions[is_send & (peer == target)]
        if (kind >= Kind.REDUCE_GRAD).any():
            yield device, "reductions", actions[kind >= Kind.REDUCE_GRAD]
