"""Which rows of a batch belong to which micro-batch and to which member of a group.

A batch is cut into micro-batches first; where its rows do not divide evenly, the first ones get one more. A group's
members then take the rows of a micro-batch in order. The end of each is its running share of the rows, rounded: as
that depends on the running share alone, two members of different groups never have a row in common unless their
shares overlap, which is when the program has a message between them.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

NUDGE = 1e-6
"""Moves the rounding off the halves, where the last bit of a sum of shares would decide."""


class Rows(NamedTuple):
    """The rows from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def num(self) -> int:
        """How many rows these are."""
        return self.stop - self.start

    def common(self, other: "Rows") -> "Rows":
        """The rows in both; none of them may be there.

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
    """The rows of each member of a group with these shares; a member may get none.

    >>> replica_rows(Rows(4, 7), [0.5, 0.5])
    (Rows(start=4, stop=6), Rows(start=6, stop=7))
    """
    ends = [rows.start + math.floor(share * rows.num + 0.5 + NUDGE) for share in accumulate(shares)]
    ends[-1] = rows.stop
    return tuple(Rows(start, stop) for start, stop in zip([rows.start, *ends[:-1]], ends, strict=True))
