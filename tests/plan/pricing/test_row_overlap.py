"""Rows of two groups: intervals by hand, and sums for any shares."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.row_overlap import NEGLIGIBLE_SHARE, Overlap, overlaps
from tests.support.reach import reach, reaches

WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def shares(weights: list[int]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


def test_two_to_three() -> None:
    # Ends at 1/2 and 1 against 1/4, 3/4 and 1.
    assert overlaps([0.5, 0.5], [0.25, 0.5, 0.25]) == [
        Overlap(0, 0, 0.25),
        Overlap(0, 1, 0.25),
        Overlap(1, 1, 0.25),
        Overlap(1, 2, 0.25),
    ]


def test_same_shares_meet_one_to_one() -> None:
    assert overlaps([0.1, 0.2, 0.7], [0.1, 0.2, 0.7]) == [Overlap(0, 0, 0.1), Overlap(1, 1, 0.2), Overlap(2, 2, 0.7)]


def test_ends_that_differ_by_rounding_make_no_overlap() -> None:
    # Three thirds, and 1/3 + 2/3 written another way: the ends are the same but for rounding.
    found = overlaps([1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 - 1 / 3])
    assert [(item.left, item.right) for item in found] == [(0, 0), (1, 1), (2, 1)]


def reach_ends(left: list[int], right: list[int], found: list[Overlap]) -> None:
    """Ends within a share of the other group, and ends in common before the last."""
    reach("crossing", len(found) > max(len(left), len(right)))
    reach("aligned", len(found) < len(left) + len(right) - 1)


@reaches(crossing=0.1, aligned=0.05)
@given(WEIGHTS, WEIGHTS)
def test_against_exact_intervals(left: list[int], right: list[int]) -> None:
    def intervals(weights: list[int]) -> list[tuple[Fraction, Fraction]]:
        total = sum(weights)
        return [
            (Fraction(sum(weights[:k]), total), Fraction(sum(weights[: k + 1]), total)) for k in range(len(weights))
        ]

    expected = {}
    for i, (begin, end) in enumerate(intervals(left)):
        for j, (other_begin, other_end) in enumerate(intervals(right)):
            common = min(end, other_end) - max(begin, other_begin)
            if common > 0:
                expected[i, j] = common
    found = overlaps(shares(left), shares(right))
    assert [(item.left, item.right) for item in found] == list(expected)
    for item in found:
        assert item.share == pytest.approx(float(expected[item.left, item.right]), rel=1e-12)
    reach_ends(left, right, found)


@reaches(crossing=0.1, aligned=0.05)
@given(WEIGHTS, WEIGHTS)
def test_sums_and_symmetry(left: list[int], right: list[int]) -> None:
    found = overlaps(shares(left), shares(right))
    for number, share in enumerate(shares(left)):
        assert sum(item.share for item in found if item.left == number) == pytest.approx(share, rel=1e-12)
    for number, share in enumerate(shares(right)):
        assert sum(item.share for item in found if item.right == number) == pytest.approx(share, rel=1e-12)
    swapped = [Overlap(item.right, item.left, item.share) for item in overlaps(shares(right), shares(left))]
    assert sorted(swapped) == sorted(found)
    assert all(item.share > NEGLIGIBLE_SHARE for item in found)
    reach_ends(left, right, found)
