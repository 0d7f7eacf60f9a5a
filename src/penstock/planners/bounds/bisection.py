"""Bisection for the least feasible value."""

from collections.abc import Callable

PRECISION = 1e-3


def least_possible(possible: Callable[[float], bool], low: float, high: float) -> float:
    """Find, within `PRECISION`, the largest value below which nothing is possible.

    Args:
        possible: Predicate that stays true for all larger values once it is true.
        low: A value below which nothing is possible.
        high: The largest value to return.

    Returns:
        A value between `low` and `high` that is never above the least possible value.

    >>> round(least_possible(lambda value: value >= 40, 3.0, 100.0), 1)
    40.0
    """
    if low <= 0 or possible(low):
        return low
    step = PRECISION * low
    while low + step < high and not possible(low + step):
        low, step = low + step, 2 * step
    high = min(high, low + step)
    while high - low > PRECISION * low:
        middle = (low + high) / 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return low
