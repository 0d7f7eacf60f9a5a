"""Links and all-reduces that made devices wait longer than predicted.

The arrival of a message is known only if its receiver waited for it, because an earlier arrival is noticed when the
payload is needed. So only those messages count. Messages on a link follow each other: the time of one begins when the
one before it has arrived.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.printable_text import escape_text
from penstock.program import COLLECTIVE_KINDS, NONE, SEND_KINDS, Kind
from penstock.timeline import Timeline, waits
from penstock.units import show_seconds

MIN_RATIO = 1.1
MIN_WAIT = 0.25
"""Share of a transfer's time. A receiver that waits for less may have noticed the arrival late."""
SIMULTANEOUS = 0.02
"""Share of a transfer's time. A message that is noticed this soon after another one may have arrived earlier."""

_REDUCTIONS = COLLECTIVE_KINDS


class SlowLink(NamedTuple):
    """The messages of a link, or the all-reduces of a group, that devices waited for in an iteration."""

    source: str | None
    """None for all-reduces."""
    devices: tuple[str, ...]
    """Sender and receiver of the messages, or the devices of the all-reduces."""
    num: int
    predicted_s: float
    """Mean seconds of one of them."""
    measured_s: float

    @property
    def excess_s(self) -> float:
        """Measured minus predicted seconds, summed over all of them."""
        return self.num * (self.measured_s - self.predicted_s)

    @property
    def sentence(self) -> str:
        """The link as a sentence.

        >>> SlowLink("d1", ("d1", "d2"), 4, 0.02, 0.2).sentence
        'The link from d1 to d2 was slow: a message took 200 ms instead of 20.0 ms (4 awaited): 720 ms more in total.'
        """
        names = [escape_text(name) for name in self.devices]
        subject = f"The link from {names[0]} to {names[1]} was slow: a message"
        if self.source is None:
            subject = f"The network among {', '.join(names)} was slow: an all-reduce"
        awaited = f" ({self.num} awaited)" if self.num > 1 else ""
        return (
            f"{subject} took {show_seconds(self.measured_s)} instead of {show_seconds(self.predicted_s)}{awaited}: "
            f"{show_seconds(self.excess_s)} more in total."
        )


def find_slow_links(predicted: Timeline, measured: Sequence[Timeline]) -> tuple[SlowLink, ...]:
    """Find links and all-reduces that took clearly longer than predicted.

    Args:
        predicted: The simulated timeline.
        measured: The measured timelines of the same program.

    Returns:
        For each of them the measured iteration with the median excess; the largest excess first.
    """
    by_link: dict[tuple[str | None, tuple[str, ...]], list[SlowLink]] = {}
    for timeline in measured:
        for link in _awaited_links(predicted, timeline):
            by_link.setdefault((link.source, link.devices), []).append(link)
    slow = []
    for items in by_link.values():
        if 2 * len(items) > len(measured):  # awaited in most iterations
            median = sorted(items, key=lambda item: item.excess_s)[(len(items) - 1) // 2]
            if median.measured_s > MIN_RATIO * median.predicted_s:
                slow.append(median)
    return tuple(sorted(slow, key=lambda item: -item.excess_s))


def _awaited_links(predicted: Timeline, timeline: Timeline) -> Iterator[SlowLink]:
    program = timeline.program
    predicted_s, measured_s = predicted.end_s - predicted.start_s, _transfer_seconds(timeline)
    by_link: dict[tuple[str | None, tuple[str, ...]], set[int]] = {}
    for transfer in _awaited(timeline, measured_s):
        by_link.setdefault(_link(timeline, transfer), set()).add(transfer)
    for (source, names), awaited in by_link.items():
        transfers = np.array(sorted(awaited))
        if source is None:  # every device has an action for the same all-reduce
            transfers = transfers[np.unique(program.stage[transfers], return_index=True)[1]]
        mean_s = float(predicted_s[transfers].mean()), float(measured_s[transfers].mean())
        yield SlowLink(source, names, len(transfers), *mean_s)


def _link(timeline: Timeline, transfer: int) -> tuple[str | None, tuple[str, ...]]:
    program = timeline.program
    kind, source = program.kind[transfer], program.devices[int(program.device_of[transfer])]
    if kind in _REDUCTIONS:
        same = (program.kind == kind) & (program.stage == program.stage[transfer])
        return None, tuple(program.devices[number] for number in np.unique(program.device_of[same]).tolist())
    return source, (source, program.devices[int(program.peer[transfer])])


def _transfer_seconds(timeline: Timeline) -> Floats:
    """The time of each message and all-reduce, without the wait for earlier ones on its link."""
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


def _awaited(timeline: Timeline, seconds: Floats) -> Iterator[int]:
    """The sends and all-reduces whose end a waiting device noticed at once."""
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
