"""Nobody waits for a rank that is late, unless for something that it makes: sends, sums and fresh parameters go on by
themselves. It is late by far more than all the work together takes, so a busy machine does not matter."""

from tests.support.runtime.late_ranks import LATE_S, action_ends, time_optimizer_step
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of


def test_a_sender_does_not_wait_for_the_receiver(rank_pool: RankPool) -> None:
    plan = plan_of([0, 2, 3], [["d0"], ["d1"]], schedule="gpipe")
    ends, _ = rank_pool.run(2, action_ends, plan, True)
    assert ends["0F2 on d0"] < ends["1F0 on d1"]


def test_work_goes_on_while_gradients_are_summed(rank_pool: RankPool) -> None:
    """Rank 0 has begun the sum of stage 1's gradients, for which rank 1 is late, and goes back through stage 0."""
    plan = plan_of([0, 1, 3], [["d0", "d1"], ["d0", "d1"]], num_microbatches=1)
    ends, _ = rank_pool.run(2, action_ends, plan, False)
    assert 0 < ends["0B0 on d0"] < ends["1B0 on d1"] < ends["1STEP on d1"]


def test_fresh_parameters_are_not_waited_for(rank_pool: RankPool) -> None:
    plan = plan_of([0, 1, 2], [["d1"], ["d0"]], backward=[["d0"], ["d0"]])
    first, _ = rank_pool.run(2, time_optimizer_step, plan)
    assert first < LATE_S / 2
