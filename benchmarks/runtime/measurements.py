"""What was measured of a subject, and the ratios that follow; kept as records."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

ALONE = "one process"
WHOLE = "one process, whole batch"


class Spread(NamedTuple):
    """A median with its quartiles."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3f} [{self.low:.3f}, {self.high:.3f}]"


def spread(values: Sequence[float]) -> Spread:
    """Of some values.

    >>> spread([3.0, 1.0, 2.0])
    Spread(low=1.5, middle=2.0, high=2.5)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One contender."""

    name: str
    detail: str
    round_s: tuple[float, ...]
    """The seconds of an iteration, round by round."""
    losses: tuple[float, ...]
    """Of the first iterations."""
    predicted_s: float | None = None
    has_remote_backward: bool = False
    explained: str = ""
    """What took longer than predicted, by action."""

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
    """All contenders on one subject, measured in turns."""

    subject: str
    title: str
    num_microbatches: int
    rows: tuple[Row, ...]
    limit: tuple[float, ...]
    """Round by round: two processes that train side by side, in trainings of one process alone."""
    two_sets: tuple[float, ...] = ()
    """Where auto chooses two sets of cuts: how many times as fast it is as with one, in rounds of these two alone."""
    over_rival: tuple[float, ...] = ()
    """How many times as fast auto is as torch's best, in rounds of these two alone: the best of many was lucky too."""
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def has(self, name: str) -> bool:
        return any(row.name == name for row in self.rows)

    def gain(self, fast: str, slow: str) -> Spread:
        """How many times as fast the one is as the other, from turns of the same round."""
        pairs = zip(self.row(slow).round_s, self.row(fast).round_s, strict=True)
        return spread([one / other for one, other in pairs])

    def of_limit(self, name: str) -> Spread:
        """The speed-up over one process as a part of the limit."""
        turns = zip(self.row(ALONE).round_s, self.row(name).round_s, self.limit, strict=True)
        return spread([alone / mine / limit for alone, mine, limit in turns])

    def best(self, names: Sequence[str]) -> str:
        """The quickest of some."""
        return min(names, key=lambda name: self.row(name).median_s)

    @property
    def torchs(self) -> list[str]:
        return [row.name for row in self.rows if row.is_torchs]
