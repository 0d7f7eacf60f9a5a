"""The rows of each micro-batch, and of each replica of a stage.

A batch is split into micro-batches first. If the rows do not divide evenly, the first micro-batches get one more. The
replicas of a group then take the rows of a micro-batch in order. Each ends at its cumulative share of the rows,
rounded. Since the end depends on the cumulative share alone, two replicas of different groups have no row in common
unless their shares overlap, which is exactly when the program has a message between them.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

NUDGE = 1e-6
"""Shifts the rounding off the halves, where the last bit of a sum of shares would decide."""


class Rows(NamedTuple):
    """The rows from `start` (included) to `stop` (excluded)."""

    start: int
    stop: int

    @property
    def num(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    def common(self, other: "Rows") -> "Rows":
        """The intersection with other rows, which may be empty.

        >>> Rows(0, 4).common(Rows(3, 9)), Rows(0, 4).common(Rows(6, 9)).num
        (Rows(start=3, stop=4), 0)
        """
        start = max(self.start, other.start)
        return Rows(start, max(start, min(self.stop, other.stop)))


def microbatch_rows(num_rows: int, num_microbatches: int) -> tuple[Rows, ...]:
    """The rows of each micro-batch.

    >>> microbatch_rows(5, 2)
    (Rows(start=0, stop=3), Rows(start=3, stop=5))
    """
    least, more = divmod(num_rows, num_microbatches)
    ends = list(accumulate(least + (number < more) for number in range(num_microbatches)))
    return tuple(Rows(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True))


def replica_rows(rows: Rows, shares: Sequence[float]) -> tuple[Rows, ...]:
    """The rows of each replica of a group with these shares. A replica may get no rows.

    >>> replica_rows(Rows(4, 7), [0.5, 0.5])
    (Rows(start=4, stop=6), Rows(start=6, stop=7))
    """
    ends = [rows.start + math.floor(share * rows.num + 0.5 + NUDGE) for share in accumulate(shares)]
    ends[-1] = rows.stop
    return tuple(Rows(start, stop) for start, stop in zip([rows.start, *ends[:-1]], ends, strict=True))
