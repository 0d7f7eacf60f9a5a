"""The least value that is possible, by halving."""

from collections.abc import Callable

PRECISION = 1e-3


def least_possible(possible: Callable[[float], bool], low: float, high: float) -> float:
    """A value below which nothing is possible, nearly the largest; at least `low`, at most `high`.

    What is possible for a value must be so for all larger ones.

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
