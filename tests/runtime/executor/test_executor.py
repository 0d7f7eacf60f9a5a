"""Ranges of the profiler, and measured timelines of unusual iterations."""

import pytest

from tests.support.runtime.instrumented_runs import profiled_ranges, small_batch_timeline
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of


def test_every_action_is_a_range_of_the_profiler(rank_pool: RankPool) -> None:
    plan = plan_of([0, 2, 5, 7], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]], schedule="zb_h1")
    for names, actions in rank_pool.run(2, profiled_ranges, plan):
        # The optimizer steps, and returns weights, outside the iteration.
        expected = [f"PP:{item}" for item in actions if not any(kind in item for kind in ("STEP", "SEND_P", "RECV_P"))]
        assert sorted(names) == sorted(expected)
        assert "PP:0F1" in names or "PP:2F1" in names


@pytest.mark.parametrize("num_rows", [1, 2])
def test_the_timeline_of_replicas_without_rows(rank_pool: RankPool, num_rows: int) -> None:
    """Two replicas and three micro-batches: some replicas have no row of a micro-batch, and receive nothing."""
    plan = plan_of([0, 3, 7], [["d0"], ["d1", "d2"]])
    ranks = rank_pool.run(3, small_batch_timeline, plan, num_rows)
    names, starts, ends = ranks[0]
    assert ranks[1:] == [None, None], "timelines go to rank 0 only"
    assert min(starts) == 0
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
    forwards = [ends[index] - starts[index] for index, name in enumerate(names) if name.startswith("1F")]
    assert len(forwards) == 6
    assert sum(seconds > 1e-5 for seconds in forwards) >= num_rows
