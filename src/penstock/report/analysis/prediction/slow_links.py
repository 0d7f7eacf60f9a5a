"""Links and all-reduces that made devices wait longer than predicted.

Only awaited transfers count (`penstock.timeline.awaited_transfers`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock.printable_text import escape_text
from penstock.program import COLLECTIVE_KINDS
from penstock.timeline import Timeline, awaited_transfers, transfer_seconds
from penstock.units import show_seconds

MIN_RATIO = 1.1

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
    predicted_s, measured_s = predicted.end_s - predicted.start_s, transfer_seconds(timeline)
    by_link: dict[tuple[str | None, tuple[str, ...]], set[int]] = {}
    for transfer in awaited_transfers(timeline, measured_s):
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
