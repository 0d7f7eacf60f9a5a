"""Rows of micro-batches and replicas."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.row_overlap import overlaps
from penstock.runtime.tensors.rows import Rows, microbatch_rows, replica_rows
from tests.support.reach import reach, reaches


def test_the_first_microbatches_get_one_more() -> None:
    assert [rows.num for rows in microbatch_rows(13, 4)] == [4, 3, 3, 3]
    assert [rows.num for rows in microbatch_rows(2, 4)] == [1, 1, 0, 0]
    assert microbatch_rows(6, 2) == (Rows(0, 3), Rows(3, 6))


def test_replicas_take_rows_in_order_by_share() -> None:
    assert replica_rows(Rows(8, 12), [0.5, 0.25, 0.25]) == (Rows(8, 10), Rows(10, 11), Rows(11, 12))
    assert replica_rows(Rows(0, 1), [0.4, 0.6]) == (Rows(0, 0), Rows(0, 1))
    assert replica_rows(Rows(5, 5), [0.5, 0.5]) == (Rows(5, 5), Rows(5, 5))


SHARES = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(lambda parts: [part / sum(parts) for part in parts])


@reaches(several=0.1, without_rows=0.03, unequal=0.1)
@given(num=st.integers(0, 40), shares=SHARES)
def test_every_row_has_one_replica(num: int, shares: list[float]) -> None:
    parts = replica_rows(Rows(3, 3 + num), shares)
    assert len(parts) == len(shares)
    assert [row for rows in parts for row in range(rows.start, rows.stop)] == list(range(3, 3 + num))
    for rows, share, end in zip(parts, shares, accumulate(shares), strict=True):
        assert abs(rows.num - share * num) < 1.001
        assert abs(rows.stop - 3 - end * num) < 0.501
    reach("several", sum(rows.num > 0 for rows in parts) > 1)
    reach("without_rows", num and any(rows.num == 0 for rows in parts))
    reach("unequal", len({rows.num for rows in parts}) > 1)


@reaches(several=0.1, message_without_rows=0.03, no_message=0.1)
@given(num=st.integers(0, 40), left=SHARES, right=SHARES)
def test_rows_in_common_are_where_the_program_has_a_message(num: int, left: list[float], right: list[float]) -> None:
    pairs = {(overlap.left, overlap.right) for overlap in overlaps(left, right)}
    lefts, rights = replica_rows(Rows(0, num), left), replica_rows(Rows(0, num), right)
    for i, rows in enumerate(lefts):
        for j, other in enumerate(rights):
            assert not rows.common(other).num or (i, j) in pairs
            reach("message_without_rows", num and (i, j) in pairs and not rows.common(other).num)
            reach("no_message", (i, j) not in pairs)
    reach("several", len(pairs) > max(len(left), len(right)))
