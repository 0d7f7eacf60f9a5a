"""The rows of a batch by stage: those of the plain functions, computed once for equal shares."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.layout.batch_rows import BatchRows
from penstock.runtime.tensors.rows import microbatch_rows, replica_rows
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

SHARES = st.sampled_from([(1.0,), (0.5, 0.5), (0.25, 0.75), (0.2, 0.3, 0.5)])


@reaches(equal=0.2, several=0.5)
@examples(100)
@given(num_rows=st.integers(1, 40), num_microbatches=st.integers(1, 8), shares=st.lists(SHARES, min_size=1, max_size=4))
def test_rows_are_those_of_every_stage(num_rows: int, num_microbatches: int, shares: list[tuple[float, ...]]) -> None:
    rows = BatchRows(num_rows, num_microbatches, shares)
    for stage, item in enumerate(shares):
        expected = [replica_rows(part, item) for part in microbatch_rows(num_rows, num_microbatches)]
        assert rows[stage] == expected
        assert rows[stage] is rows[shares.index(item)]
    reach("equal", len(set(shares)) < len(shares))
    reach("several", len(shares) > 1)
