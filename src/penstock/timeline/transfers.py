"""Measured transfers: how long each took, and which of them were awaited.

The arrival of a message is known only if its receiver waited for it, because an earlier arrival is noticed when the
payload is needed. Messages on a link follow each other: the time of one begins when the one before it has arrived.
"""

from collections.abc import Iterator

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program import COLLECTIVE_KINDS, NONE, SEND_KINDS, Kind
from penstock.timeline.summary import waits
from penstock.timeline.types import Timeline

MIN_WAIT = 0.25
"""Share of a transfer's time. A receiver that waits for less may have noticed the arrival late."""
SIMULTANEOUS = 0.02
"""Share of a transfer's time. A message that is noticed this soon after another one may have arrived earlier."""

_REDUCTIONS = COLLECTIVE_KINDS


def transfer_seconds(timeline: Timeline) -> Floats:
    """The seconds of each action; of a send or an all-reduce without the wait for earlier ones on its link.

    Args:
        timeline: A simulated or measured timeline.
    """
    program = timeline.program
    seconds = timeline.end_s - timeline.start_s
    free_s: dict[tuple[int, ...], float] = {}
    rows = np.flatnonzero(np.isin(program.kind, (*SEND_KINDS, *_REDUCTIONS)))
    for row in rows[np.lexsort((timeline.end_s[rows], timeline.start_s[rows]))].tolist():
        link = int(program.device_of[row]), int(program.peer[row])
        start_s, end_s = float(timeline.start_s[row]), float(timeline.end_s[row])
        seconds[row] = max(0.0, end_s - max(start_s, free_s.get(link, 0.0)))
        free_s[link] = max(end_s, free_s.get(link, 0.0))
    return seconds


def awaited_transfers(timeline: Timeline, seconds: Floats) -> Iterator[int]:
    """The sends and all-reduces whose end a waiting device noticed at once.

    Args:
        timeline: A measured timeline.
        seconds: The `transfer_seconds` of it.

    Yields:
        Actions; an action may appear more than once.
    """
    arrivals = _arrivals(timeline)
    for device, since_s, transfer in _all_waits(timeline):
        rows, end_s = arrivals[device], float(timeline.end_s[transfer])
        # Of several that were noticed together, the device waited for the first.
        begin_s = max(since_s, end_s - SIMULTANEOUS * float(seconds[transfer]))
        first = int(rows[np.searchsorted(timeline.end_s[rows], begin_s, side="left")])
        if timeline.end_s[first] - since_s > MIN_WAIT * seconds[first]:
            yield first


def _all_waits(timeline: Timeline) -> Iterator[tuple[int, float, int]]:
    """Device, start of the wait, and awaited send or all-reduce. The iteration's end waits for returned weights."""
    program = timeline.program
    for wait in waits(timeline):
        if wait.cause != NONE and program.kind[wait.cause] in (*SEND_KINDS, *_REDUCTIONS):
            yield int(program.device_of[wait.action]), wait.start_s, wait.cause
    last_s = np.zeros(len(program.devices))
    np.maximum.at(last_s, program.device_of[timeline.is_compute], timeline.end_s[timeline.is_compute])
    for send in program.rows_of(Kind.SEND_P).tolist():
        target = int(program.peer[send])
        yield target, float(last_s[target]), send


def _arrivals(timeline: Timeline) -> list[Ints]:
    """By device: the sends to it and its all-reduces, in the order of their ends."""
    program = timeline.program
    rows = np.flatnonzero(np.isin(program.kind, (*SEND_KINDS, *_REDUCTIONS)))
    target = np.where(np.isin(program.kind[rows], _REDUCTIONS), program.device_of[rows], program.peer[rows])
    order = np.argsort(timeline.end_s[rows], kind="stable")
    rows, target = rows[order], target[order]
    return [rows[target == number] for number in range(len(program.devices))]
