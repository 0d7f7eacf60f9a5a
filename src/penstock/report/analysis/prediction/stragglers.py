"""Stragglers: devices that were slower, or faster, than predicted in all their actions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.printable_text import escape_text
from penstock.timeline import Timeline
from penstock.units import show_seconds

MIN_CHANGE = 0.1
MAX_SPREAD = 0.1
"""The ratio of every kind of action must be within this of the ratio of its device."""
MIN_SHARE = 0.1
"""Kinds with a smaller share of the device's busy time are not considered."""


class Straggler(NamedTuple):
    """The compute time of a device in an iteration."""

    device: str
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s

    @property
    def excess_s(self) -> float:
        """Measured minus predicted seconds."""
        return self.measured_s - self.predicted_s

    @property
    def sentence(self) -> str:
        """The straggler as a sentence.

        >>> Straggler("d1", 0.2, 0.6).sentence
        'd1 was slow: its actions took 3.00 times as long as predicted, 600 ms instead of 200 ms.'
        """
        pace = "slow" if self.ratio > 1 else "fast"
        return (
            f"{escape_text(self.device)} was {pace}: its actions took {self.ratio:.2f} times as long as predicted, "
            f"{show_seconds(self.measured_s)} instead of {show_seconds(self.predicted_s)}."
        )


def find_stragglers(predicted: Timeline, durations: Sequence[Floats]) -> tuple[Straggler, ...]:
    """Find the devices whose actions all differ from the prediction by about the same factor.

    Args:
        predicted: The simulated timeline.
        durations: For each measured iteration the seconds of all actions.

    Returns:
        The stragglers, the largest difference first.
    """
    program = predicted.program
    predicted_s = predicted.end_s - predicted.start_s
    stragglers = []
    for number, name in enumerate(program.devices):
        compute = np.flatnonzero(predicted.is_compute & (program.device_of == number))
        if not predicted_s[compute].sum() > 0:
            continue
        kinds = np.stack([program.kind[compute], program.stage[compute]])
        group = np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1)
        planned_s = np.bincount(group, predicted_s[compute])
        # As in the table of the kinds: for each kind the median over the iterations.
        taken_s = np.median([np.bincount(group, duration[compute]) for duration in durations], axis=0)
        item = Straggler(name, float(planned_s.sum()), float(taken_s.sum()))
        if abs(item.ratio - 1) < MIN_CHANGE:
            continue
        large = planned_s >= MIN_SHARE * item.predicted_s
        if np.all(np.abs(taken_s[large] / planned_s[large] / item.ratio - 1) < MAX_SPREAD):
            stragglers.append(item)
    return tuple(sorted(stragglers, key=lambda item: -abs(item.excess_s)))
