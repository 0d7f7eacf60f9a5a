"""How steady repeated measurements are: when to stop, and what to say about it."""

import math
import statistics
from collections.abc import Sequence

import msgspec

# The median absolute deviation of normally distributed numbers is so much less than their standard deviation.
_TO_DEVIATION = 1.4826


class Steadiness(msgspec.Struct, frozen=True, kw_only=True):
    """How far medians may be off, as parts of themselves: for the sum of all units, and for the worst one."""

    num_rounds: int
    seconds: float
    overall: float
    worst: float
    worst_unit: str
    wanted: float

    @property
    def is_steady(self) -> bool:
        """Whether the sum of all units is as steady as was wanted."""
        return self.overall <= self.wanted


def spread(samples: Sequence[float]) -> float:
    """About one standard error of the median, as a part of it. Few outliers do not matter.

    >>> round(spread([1.0, 1.1, 0.9, 1.0, 50.0]), 3)
    0.066
    """
    middle = statistics.median(samples)
    if middle == 0:
        return 0.0
    deviation = _TO_DEVIATION * statistics.median(abs(sample - middle) for sample in samples)
    return deviation / math.sqrt(len(samples)) / middle


def judge(
    names: Sequence[str], samples: Sequence[Sequence[Sequence[float]]], *, seconds: float, wanted: float
) -> Steadiness:
    """How steady `samples[size][unit]` are: seconds of each unit, in rounds, for several sizes of micro-batches.

    The overall figure weighs every unit with its time, so that a tiny and restless one does not count for much.
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
        wanted=wanted,
    )
