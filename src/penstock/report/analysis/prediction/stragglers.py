"""Devices that were slower, or faster, than predicted in all that they did."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.report.names import shown_name
from penstock.timeline import Timeline
from penstock.units import show_seconds

LEAST_CHANGE = 0.1
ALIKE = 0.1
"""Kinds of jobs whose ratios are within this of their device's are slow alike."""
LEAST_SHARE = 0.1
"""Kinds that are less than this of a device's work do not decide."""


class DraggingDevice(NamedTuple):
    """All jobs of a device in an iteration, together."""

    device: str
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s

    @property
    def excess_s(self) -> float:
        """By how much they took longer."""
        return self.measured_s - self.predicted_s

    @property
    def in_words(self) -> str:
        """A sentence.

        >>> DraggingDevice("d1", 0.2, 0.6).in_words
        'd1 was slow: its jobs took 3.00 times as long as predicted, 600 ms instead of 200 ms.'
        """
        pace = "slow" if self.ratio > 1 else "fast"
        return (
            f"{shown_name(self.device)} was {pace}: its jobs took {self.ratio:.2f} times as long as predicted, "
            f"{show_seconds(self.measured_s)} instead of {show_seconds(self.predicted_s)}."
        )


def dragging_devices(predicted: Timeline, durations: Sequence[Floats]) -> tuple[DraggingDevice, ...]:
    """Those whose jobs are all off by about the same factor; `durations` are of all actions, by measured iteration."""
    program = predicted.program
    foreseen = predicted.end_s - predicted.start_s
    usual = np.median(np.array(durations), axis=0)
    found = []
    for number, name in enumerate(program.devices):
        jobs = np.flatnonzero(predicted.is_compute & (program.device_of == number))
        item = DraggingDevice(name, float(foreseen[jobs].sum()), float(usual[jobs].sum()))
        if item.predicted_s <= 0 or abs(item.ratio - 1) < LEAST_CHANGE:
            continue
        kinds = np.stack([program.kind[jobs], program.stage[jobs]])
        member = np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1)
        planned, taken = np.bincount(member, foreseen[jobs]), np.bincount(member, usual[jobs])
        large = planned >= LEAST_SHARE * item.predicted_s
        if np.all(np.abs(taken[large] / planned[large] / item.ratio - 1) < ALIKE):
            found.append(item)
    return tuple(sorted(found, key=lambda item: -abs(item.excess_s)))
