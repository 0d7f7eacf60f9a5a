"""Estimated speeds of devices and links, with their standard errors, from several measured iterations."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.adaptation.link_series import link_series
from penstock.adaptation.measurement import Link, Measurement

WINDOW = 8
"""Iterations that an estimate is made of."""
MIN_SAMPLES = 4
MIN_NOISE = 0.005
"""Standard deviation of an iteration that is assumed at least, as a fraction."""
MEDIAN_ERROR = 1.2533
"""The standard error of a median, relative to that of a mean."""
STANDARD_ERRORS = 4.0
"""A speed differs if it does by this many standard errors: it is tested for every device in every iteration."""
MIN_CHANGE = 0.06
"""A smaller relative change of a device's speed is not worth a plan."""
MIN_LINK_CHANGE = 0.5
"""The same of a link. The measured time of a message depends on what else its devices do."""


class Speed(NamedTuple):
    """How many times as long as declared a device or link takes.

    A link is never taken to be faster than declared: its messages may begin to arrive before both ends have started.

    >>> Speed(2.0, 0.01).differs_from(1.0), Speed(1.2, 0.1).differs_from(1.0)
    (True, False)
    """

    slowness: float
    error: float
    """Relative standard error."""
    min_change: float = MIN_CHANGE

    def differs_from(self, slowness: float) -> bool:
        """Whether it differs from a slowness by more than its noise."""
        change = abs(math.log(self.slowness / slowness))
        return change > max(STANDARD_ERRORS * self.error, math.log1p(self.min_change))


AS_DECLARED = Speed(1.0, 0.0)


@dataclass(frozen=True)
class Speeds:
    """Estimated speeds of devices and directed links; those that were never measured are as declared."""

    devices: Mapping[str, Speed] = field(default_factory=dict)
    links: Mapping[Link, Speed] = field(default_factory=dict)

    def differ_from(self, other: "Speeds") -> bool:
        """Whether a device or link has another speed than in `other`, by more than the noise."""
        return bool(self.changes(other))

    def changes(self, other: "Speeds") -> list[str]:
        """The devices and links whose speed differs from that in `other`, in words.

        >>> Speeds({"d1": Speed(2.0, 0.01)}).changes(Speeds())
        ['d1 takes 2.00 x as long as declared']
        """
        rows = [(name, speed, other.devices.get(name, AS_DECLARED)) for name, speed in sorted(self.devices.items())] + [
            (f"the link from {link[0]} to {link[1]}", speed, other.links.get(link, AS_DECLARED))
            for link, speed in sorted(self.links.items())
        ]
        return [
            f"{name} takes {speed.slowness:.2f} x as long as declared"
            for name, speed, before in rows
            if speed.differs_from(before.slowness)
        ]

    def drawn(self, generator: np.random.Generator) -> "Speeds":
        """Speeds that the measurements allow as well: each changed randomly by its standard error."""

        def draw(speed: Speed) -> Speed:
            center = speed.slowness if speed.differs_from(1.0) else 1.0
            return speed._replace(slowness=center * math.exp(speed.error * float(generator.standard_normal())))

        return Speeds(
            {name: draw(speed) for name, speed in sorted(self.devices.items())},
            {link: draw(speed) for link, speed in sorted(self.links.items())},
        )


def estimate_speeds(history: Sequence[Measurement]) -> Speeds:
    """Estimate the speeds from measured iterations, the latest last.

    Each estimate is the median of the last `WINDOW` iterations in which the device or link was measured. The noise is
    that of the series or of all devices together, whichever is larger, so that the few iterations in which a speed
    changes make an estimate uncertain instead of wrong.

    Args:
        history: The measured iterations, under one plan or several.
    """
    devices = _series([item.devices for item in history])
    noise = float(np.median([_deviation(values) for values in devices.values()])) if devices else 0.0
    noise = max(noise, MIN_NOISE)
    links = link_series(history, WINDOW, MIN_SAMPLES)
    return Speeds(
        {name: speed for name, values in devices.items() if (speed := _speed(values, noise)) is not None},
        {link: speed for link, values in links.items() if (speed := _link_speed(values, noise)) is not None},
    )


def _series(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    series: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            series.setdefault(name, []).append(math.log(value))
    return {name: values[-WINDOW:] for name, values in series.items()}


def _deviation(values: Sequence[float]) -> float:
    """The standard deviation, as its robust estimate from the median."""
    return 1.4826 * float(np.median(np.abs(np.array(values) - np.median(values))))


def _speed(values: Sequence[float], noise: float) -> Speed | None:
    if len(values) < MIN_SAMPLES:
        return None
    error = MEDIAN_ERROR * max(noise, _deviation(values)) / math.sqrt(len(values))
    return Speed(math.exp(float(np.median(values))), error)


def _link_speed(values: Sequence[float], noise: float) -> Speed | None:
    speed = _speed(values, noise)
    return None if speed is None else Speed(max(1.0, speed.slowness), speed.error, MIN_LINK_CHANGE)
