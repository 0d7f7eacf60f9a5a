"""Links and sums that kept devices waiting for longer than was predicted.

When a message came is known only where somebody waited for it (what was there before is found when it is needed), so
only those messages are counted. Messages follow each other on a link: one takes its time from the moment at which the
one before it had come.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program import NONE, SEND_KINDS, Kind
from penstock.report.names import shown_name
from penstock.timeline import Timeline, waits
from penstock.units import show_seconds

LEAST_RATIO = 1.1
LEAST_WAITED = 0.25
"""Of a transfer's time: somebody who waited for less of it may have come too late to see when it ended."""
TOGETHER = 0.02
"""Of a transfer's time: what is found so soon after another one may have been there before."""

_SUMS = (Kind.REDUCE_GRAD, Kind.REDUCE_TIE)


class SlowLink(NamedTuple):
    """The messages of a link, or the sums of a group, that devices waited for in an iteration."""

    source: str | None
    """None for sums."""
    devices: tuple[str, ...]
    """Where the messages came from and went to, or who took part in the sums."""
    num: int
    predicted_s: float
    """Of one of them, on average."""
    measured_s: float

    @property
    def excess_s(self) -> float:
        """By how much all of them together took longer."""
        return self.num * (self.measured_s - self.predicted_s)

    @property
    def in_words(self) -> str:
        """A sentence.

        >>> SlowLink("d1", ("d1", "d2"), 4, 0.02, 0.2).in_words
        'The link from d1 to d2 was slow: a message took 200 ms, not 20.0 ms (4 were waited for): 720 ms more in all.'
        """
        names = [shown_name(name) for name in self.devices]
        who = f"The link from {names[0]} to {names[1]} was slow: a message"
        if self.source is None:
            who = f"The network among {', '.join(names)} was slow: an all-reduce"
        waited = f" ({self.num} were waited for)" if self.num > 1 else ""
        return (
            f"{who} took {show_seconds(self.measured_s)}, not {show_seconds(self.predicted_s)}{waited}: "
            f"{show_seconds(self.excess_s)} more in all."
        )


def slow_links(predicted: Timeline, measured: Sequence[Timeline]) -> tuple[SlowLink, ...]:
    """Those that took clearly longer than predicted, in the iteration in the middle; the worst first."""
    by_link: dict[tuple[str | None, tuple[str, ...]], list[SlowLink]] = {}
    for timeline in measured:
        for found in _of_one(predicted, timeline):
            by_link.setdefault((found.source, found.devices), []).append(found)
    slow = []
    for items in by_link.values():
        if 2 * len(items) > len(measured):  # else it was not waited for, mostly
            middle = sorted(items, key=lambda item: item.excess_s)[(len(items) - 1) // 2]
            if middle.measured_s > LEAST_RATIO * middle.predicted_s:
                slow.append(middle)
    return tuple(sorted(slow, key=lambda item: -item.excess_s))


def _of_one(predicted: Timeline, timeline: Timeline) -> Iterator[SlowLink]:
    program = timeline.program
    foreseen, taken = predicted.end_s - predicted.start_s, _taken(timeline)
    found: dict[tuple[str | None, tuple[str, ...]], set[int]] = {}
    for transfer in _waited_for(timeline, taken):
        found.setdefault(_where(timeline, transfer), set()).add(transfer)
    for (source, names), transfers in found.items():
        at = np.array(sorted(transfers))
        if source is None:
            at = at[np.unique(program.stage[at], return_index=True)[1]]  # a sum is there once for each device
        yield SlowLink(source, names, len(at), float(foreseen[at].mean()), float(taken[at].mean()))


def _where(timeline: Timeline, transfer: int) -> tuple[str | None, tuple[str, ...]]:
    program = timeline.program
    kind, source = program.kind[transfer], program.devices[int(program.device_of[transfer])]
    if kind in _SUMS:
        same = (program.kind == kind) & (program.stage == program.stage[transfer])
        return None, tuple(program.devices[number] for number in np.unique(program.device_of[same]).tolist())
    return source, (source, program.devices[int(program.peer[transfer])])


def _taken(timeline: Timeline) -> Floats:
    """How long each message was on its link, and each sum on those of its group, behind those before it."""
    program = timeline.program
    taken = timeline.end_s - timeline.start_s
    came: dict[tuple[int, ...], float] = {}
    rows = np.flatnonzero(np.isin(program.kind, (*SEND_KINDS, *_SUMS)))
    for row in rows[np.lexsort((timeline.end_s[rows], timeline.start_s[rows]))].tolist():
        link = int(program.device_of[row]), int(program.peer[row])
        start_s, end_s = float(timeline.start_s[row]), float(timeline.end_s[row])
        taken[row] = max(0.0, end_s - max(start_s, came.get(link, 0.0)))
        came[link] = max(end_s, came.get(link, 0.0))
    return taken


def _waited_for(timeline: Timeline, taken: Floats) -> Iterator[int]:
    """The sends and sums whose end somebody saw."""
    arrivals = _arrivals(timeline)
    for device, since_s, transfer in _all_waits(timeline):
        rows, end_s = arrivals[device], float(timeline.end_s[transfer])
        # The first of those that were found together is the one that was waited for.
        begin_s = max(since_s, end_s - TOGETHER * float(taken[transfer]))
        first = int(rows[np.searchsorted(timeline.end_s[rows], begin_s, side="left")])
        if timeline.end_s[first] - since_s > LEAST_WAITED * taken[first]:
            yield first


def _all_waits(timeline: Timeline) -> Iterator[tuple[int, float, int]]:
    """Who waited, since when, for which send or sum. The end of an iteration waits for parameters that go back."""
    program = timeline.program
    for wait in waits(timeline):
        if wait.cause != NONE and program.kind[wait.cause] in (*SEND_KINDS, *_SUMS):
            yield int(program.device_of[wait.action]), wait.start_s, wait.cause
    computed = np.zeros(len(program.devices))
    np.maximum.at(computed, program.device_of[timeline.is_compute], timeline.end_s[timeline.is_compute])
    for send in np.flatnonzero(program.kind == Kind.SEND_P).tolist():
        target = int(program.peer[send])
        yield target, float(computed[target]), send


def _arrivals(timeline: Timeline) -> list[Ints]:
    """By device: the sends to it and the sums that it takes part in, as they were found."""
    program = timeline.program
    rows = np.flatnonzero(np.isin(program.kind, (*SEND_KINDS, *_SUMS)))
    target = np.where(np.isin(program.kind[rows], _SUMS), program.device_of[rows], program.peer[rows])
    order = np.argsort(timeline.end_s[rows], kind="stable")
    rows, target = rows[order], target[order]
    return [rows[target == number] for number in range(len(program.devices))]
