"""Measurements of a workload, and their ratios."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

SINGLE_PROCESS = "one process"
SINGLE_PROCESS_WHOLE_BATCH = "one process, whole batch"


class Spread(NamedTuple):
    """A median with its quartiles."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"


def spread(values: Sequence[float]) -> Spread:
    """The median and the quartiles of values.
    >>> spread([3.0, 1.0, 2.0])
    Spread(low=1.5, middle=2.0, high=2.5)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one contender."""

    name: str
    detail: str
    round_s: tuple[float, ...]
    """The iteration time of each round."""
    losses: tuple[float, ...]
    """The losses of the first iterations."""
    predicted_s: float | None = None
    interval_s: tuple[float, float] | None = None
    """The predicted interval."""
    has_remote_backward: bool = False
    explained: str = ""
    """Predicted and measured times by kind of action."""

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("ours")

    @property
    def is_torchs(self) -> bool:
        return self.name.startswith("torch")

    @property
    def median_s(self) -> float:
        return statistics.median(self.round_s)


class SpeedRun(msgspec.Struct, frozen=True, kw_only=True):
    """All contenders on one workload, measured in turns."""

    workload: str
    title: str
    num_microbatches: int
    rows: tuple[Row, ...]
    limit: tuple[float, ...]
    """By round: the throughput of two independent processes, relative to that of one."""
    two_sets: tuple[float, ...] = ()
    """The speed-up of two sets of cuts over one, if `auto` chooses two, in rounds of these two alone."""
    over_variants: tuple[float, ...] = ()
    """The speed-up of `auto` over its best restricted variant, in rounds of these two alone; empty if equal."""
    over_baseline: tuple[float, ...] = ()
    """The speed-up of `auto` over torch's best, in new rounds of these two alone: the best of many was also lucky."""
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def has(self, name: str) -> bool:
        return any(row.name == name for row in self.rows)

    def gain(self, fast: str, slow: str) -> Spread:
        """The speed-up of one contender over another, by round."""
        pairs = zip(self.row(slow).round_s, self.row(fast).round_s, strict=True)
        return spread([one / other for one, other in pairs])

    def of_limit(self, name: str) -> Spread:
        """The speed-up over a single process, as a fraction of the limit."""
        turns = zip(self.row(SINGLE_PROCESS).round_s, self.row(name).round_s, self.limit, strict=True)
        return spread([alone / mine / limit for alone, mine, limit in turns])

    def best(self, names: Sequence[str]) -> str:
        """The fastest of some contenders."""
        return min(names, key=lambda name: self.row(name).median_s)

    @property
    def torchs(self) -> list[str]:
        return [row.name for row in self.rows if row.is_torchs]
