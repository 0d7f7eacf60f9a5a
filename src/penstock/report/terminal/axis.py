"""The time axis under a timeline: ticks at round times, in one unit."""

import math
from typing import NamedTuple

_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_GAP = 4
"""The minimum number of columns between two labels."""


class Axis(NamedTuple):
    """Two lines as wide as the timeline."""

    line: str
    labels: str


class Tick(NamedTuple):
    """A tick on the axis."""

    column: int
    label: str


def time_axis(iteration_s: float, width: int) -> Axis:
    r"""The axis of an iteration on `width` columns.

    >>> print("\n".join(time_axis(0.25, 50)))
    |---------|---------|---------|---------|---------
    0 ms      50        100       150       200
    """
    line, labels = ["-"] * width, [" "] * width
    for tick in ticks(iteration_s, width):
        line[tick.column] = "|"
        labels[tick.column : tick.column + len(tick.label)] = tick.label
    return Axis("".join(line), "".join(labels).rstrip())


def ticks(iteration_s: float, width: int) -> list[Tick]:
    """Ticks at the smallest step of 1, 2 or 5 times a power of ten whose labels fit side by side."""
    unit, unit_s = next((item for item in _UNITS if iteration_s >= item[1]), _UNITS[-1])
    total = iteration_s / unit_s
    if total < 1e-3:  # below a picosecond there is only the tick at 0
        return [Tick(0, label) for label in (f"0 {unit}",) if len(label) <= width]
    power = math.floor(math.log10(total)) - 3
    while True:
        for factor in (1, 2, 5):
            fitting = _ticks_at(factor, power, total, width, unit)
            if fitting:
                return fitting
        power += 1


def _ticks_at(factor: int, power: int, total: float, width: int, unit: str) -> list[Tick]:
    """All ticks at a step; none if their labels would touch. A step above the total always fits."""
    step = factor * 10.0**power
    num = int(total / step + 1e-9)
    if num > width:
        return []
    marks: list[Tick] = []
    free = 0
    for number in range(num + 1):
        column = round(number * step / total * width)
        label = f"{number * step:,.{max(0, -power)}f}" + (f" {unit}" if number == 0 else "")
        if column + len(label) > width:
            break
        if column < free:
            return []
        marks.append(Tick(column, label))
        free = column + len(label) + _GAP
    return marks or [Tick(0, "")]
