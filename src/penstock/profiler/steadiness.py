"""Variation of repeated measurements, as the criterion for ending them."""

import math
import statistics
from collections.abc import Sequence

import msgspec

# Ratio of the standard deviation of a normal distribution to its median absolute deviation.
_TO_DEVIATION = 1.4826


class Steadiness(msgspec.Struct, frozen=True, kw_only=True):
    """Relative standard errors of the medians.

    Attributes:
        num_rounds: Rounds so far.
        seconds: Time since the start.
        overall: Error of all layers together, weighted by time.
        worst: Error of the least steady layer.
        worst_unit: Name of that layer.
        tolerance: Required `overall`.
    """

    num_rounds: int
    seconds: float
    overall: float
    worst: float
    worst_unit: str
    tolerance: float

    @property
    def is_steady(self) -> bool:
        """Whether the error of all layers together is within the tolerance."""
        return self.overall <= self.tolerance


def median_error(samples: Sequence[float]) -> float:
    """Return the approximate standard error of the median. It is robust to a few outliers.

    >>> round(median_error([1.0, 1.1, 0.9, 1.0, 50.0]), 3)
    0.066
    """
    middle = statistics.median(samples)
    deviation = _TO_DEVIATION * statistics.median(abs(sample - middle) for sample in samples)
    return deviation / math.sqrt(len(samples))


def spread(samples: Sequence[float]) -> float:
    """Return the approximate relative standard error of the median.

    >>> round(spread([2.0, 2.2, 1.8, 2.0, 100.0]), 3)
    0.066
    """
    middle = statistics.median(samples)
    return median_error(samples) / middle if middle else 0.0


def deviation(samples: Sequence[float]) -> float:
    """Return the approximate relative standard deviation of a single sample. It is robust to a few outliers.

    >>> round(deviation([2.0, 2.2, 1.8, 2.0, 100.0]), 3)
    0.148
    """
    return spread(samples) * math.sqrt(len(samples))


def assess(
    names: Sequence[str], samples: Sequence[Sequence[Sequence[float]]], *, seconds: float, tolerance: float
) -> Steadiness:
    """Assess measurements.

    Layers are weighted by their time, so that a small layer with high variation has little effect on the overall
    error.

    Args:
        names: Names of the layers.
        samples: `samples[size][unit]` are the seconds of a layer in each round, for each micro-batch size.
        seconds: Time since the start.
        tolerance: Required overall error.
    """
    overall, worst, worst_unit = 0.0, 0.0, names[0]
    for units in samples:
        medians = [statistics.median(unit) for unit in units]
        spreads = [spread(unit) for unit in units]
        total = sum(medians)
        if total:
            weighted = sum(median * part for median, part in zip(medians, spreads, strict=True)) / total
            overall = max(overall, weighted)
        top = max(range(len(names)), key=lambda number: spreads[number])
        if spreads[top] > worst:
            worst, worst_unit = spreads[top], names[top]
    return Steadiness(
        num_rounds=len(samples[0][0]),
        seconds=seconds,
        overall=overall,
        worst=worst,
        worst_unit=worst_unit,
        tolerance=tolerance,
    )
