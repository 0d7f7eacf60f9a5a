"""Speeds of devices relative to others of their kind, from the measured rates of the kernel."""

import statistics
from collections.abc import Sequence

from penstock.probe.types import RankInfo

ALIKE = 0.07
"""Devices whose rates differ by less than this fraction count as equally fast."""


def find_slow_ranks(rank_infos: Sequence[RankInfo]) -> set[int]:
    """Return the ranks that are slower than the fastest device of their kind."""
    best: dict[str, float] = {}
    for info in rank_infos:
        best[info.kind] = max(info.flops_per_s, best.get(info.kind, 0.0))
    return {info.rank for info in rank_infos if info.flops_per_s < (1 - ALIKE) * best[info.kind]}


def speeds_of(rank_infos: Sequence[RankInfo]) -> list[float]:
    """Return the speed of each device relative to the median of its kind; exactly 1 within the tolerance."""
    rates: dict[str, list[float]] = {}
    for info in rank_infos:
        rates.setdefault(info.kind, []).append(info.flops_per_s)
    ratios = [info.flops_per_s / statistics.median(rates[info.kind]) for info in rank_infos]
    return [1.0 if abs(ratio - 1) <= ALIKE else float(f"{ratio:.2g}") for ratio in ratios]
