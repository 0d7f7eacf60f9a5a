"""Speeds of devices, relative to others of their kind, from the rates that they reached in the kernel."""

import statistics
from collections.abc import Sequence

from penstock.probe.types import Seat

ALIKE = 0.07
"""Devices that differ by less than this part are equally fast."""


def laggards(seats: Sequence[Seat]) -> set[int]:
    """The ranks that are slower than the fastest of their kind."""
    best: dict[str, float] = {}
    for seat in seats:
        best[seat.kind] = max(seat.flops_per_s, best.get(seat.kind, 0.0))
    return {seat.rank for seat in seats if seat.flops_per_s < (1 - ALIKE) * best[seat.kind]}


def speeds_of(seats: Sequence[Seat]) -> list[float]:
    """The speed of each: 1 for the median of its kind and what is like it."""
    rates: dict[str, list[float]] = {}
    for seat in seats:
        rates.setdefault(seat.kind, []).append(seat.flops_per_s)
    ratios = [seat.flops_per_s / statistics.median(rates[seat.kind]) for seat in seats]
    return [1.0 if abs(ratio - 1) <= ALIKE else float(f"{ratio:.2g}") for ratio in ratios]
