from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.report.trace.rows import lanes
from tests.support.reach import reach, reaches


@reaches(several=0.1, reused=0.1, empty=0.05)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=40))
def test_lanes_are_as_few_as_can_be(stretches: list[tuple[int, int]]) -> None:
    spans = sorted((start, start + length) for start, length in stretches)
    columns = np.array(spans, dtype=np.int64).reshape(-1, 2)
    lane = lanes(columns[:, 0], columns[:, 1]).tolist()
    for number in set(lane):
        row = [span for span, at in zip(spans, lane, strict=True) if at == number]
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(row))
    # All that still run when one starts need a lane each, and so does that one.
    needed = [1 + sum(end > start for _, end in spans[:index]) for index, (start, _) in enumerate(spans)]
    assert len(set(lane)) == max(needed, default=0)
    reach("several", len(set(lane)) > 1)
    reach("reused", len(set(lane)) < len(lane))
    reach("empty", any(start == end for start, end in spans))
