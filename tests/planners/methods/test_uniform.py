"""Uniform: sizes that differ by at most one."""

from itertools import pairwise

import pytest

from penstock.planners.methods.uniform import even_cuts


@pytest.mark.parametrize("num_units", range(1, 30))
def test_sizes(num_units: int) -> None:
    for num_stages in range(1, num_units + 1):
        cuts = even_cuts(num_units, num_stages)
        sizes = [stop - start for start, stop in pairwise(cuts)]
        assert (cuts[0], cuts[-1], len(sizes)) == (0, num_units, num_stages)
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
        assert sizes == sorted(sizes, reverse=True), "the earlier ones take the odd ones"


def test_by_hand() -> None:
    assert even_cuts(7, 3) == [0, 3, 5, 7]
    assert even_cuts(4, 4) == [0, 1, 2, 3, 4]
    assert even_cuts(5, 1) == [0, 5]
