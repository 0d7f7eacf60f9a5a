"""Overlap of the rows of two groups' replicas."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

NEGLIGIBLE_SHARE = 1e-9


class Overlap(NamedTuple):
    """The share of all rows that replica `left` of one group and replica `right` of the other have in common."""

    left: int
    right: int
    share: float


def overlaps(left: Sequence[float], right: Sequence[float]) -> list[Overlap]:
    """The replicas of two groups with rows in common; each group takes the rows in order of its replicas.

    >>> overlaps([1.0], [0.5, 0.5])
    [Overlap(left=0, right=0, share=0.5), Overlap(left=0, right=1, share=0.5)]
    """
    if list(left) == list(right):
        return [Overlap(place, place, share) for place, share in enumerate(left)]
    left_ends, right_ends = list(accumulate(left)), list(accumulate(right))
    left_ends[-1] = right_ends[-1] = 1.0
    found: list[Overlap] = []
    i = j = 0
    begin = 0.0
    while i < len(left) and j < len(right):
        end = min(left_ends[i], right_ends[j])
        if end - begin > NEGLIGIBLE_SHARE:
            found.append(Overlap(i, j, end - begin))
        begin = max(begin, end)
        step_left, step_right = left_ends[i] <= end, right_ends[j] <= end
        i, j = i + step_left, j + step_right
    return found


def whole_rows(shares: Sequence[float], num_rows: int) -> list[int] | None:
    """Whole rows for every replica, as near to the shares as possible; None if a replica would get none.

    Each replica gets the integer part of its share; the remaining rows go to the largest fractional parts, ties to the
    first replica.

    >>> whole_rows([0.5, 0.3, 0.2], 8), whole_rows([0.9, 0.1], 4)
    ([4, 2, 2], None)
    """
    wanted = [share * num_rows for share in shares]
    rows = [int(part + NEGLIGIBLE_SHARE) for part in wanted]
    by_rest = sorted(range(len(rows)), key=lambda replica: rows[replica] - wanted[replica])
    for replica in by_rest[: num_rows - sum(rows)]:
        rows[replica] += 1
    return rows if min(rows) > 0 else None
