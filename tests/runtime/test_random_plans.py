"""Whatever the proof accepts, runs: random plans with everything in them."""

import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.reach import reaches
from tests.support.runtime.chains import train, train_single_process
from tests.support.runtime.rank_pool import RankPool
from tests.support.strategies import Case, cases, reach_features
from tests.support.thoroughness import examples

torch.set_num_threads(1)


@reaches(several_devices=0.1, several_stages=0.1, replicated=0.1, remote=0.1, recompute=0.1, tied=0.1)
@examples(15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(case=cases(max_microbatches=4).filter(lambda case: len(case.plan.devices) <= 4), num_rows=st.integers(1, 13))
def test_random_plans_give_the_numbers_of_one_process(rank_pool: RankPool, case: Case, num_rows: int) -> None:
    compare(rank_pool, case, num_rows)


def compare(rank_pool: RankPool, case: Case, num_rows: int) -> None:
    """With training in one process."""
    reach_features(case)
    tied = tuple(sorted(case.profile.ties[0].units)) if case.profile.ties else ()
    ranks = rank_pool.run(len(case.plan.devices), train, case.plan, tied, num_rows)
    losses, parameters = train_single_process(case.plan, tied, num_rows)
    assert {name for _, found, _ in ranks for name in found} == set(parameters)
    for found_losses, found, exact in ranks:
        for one, other in [
            *zip(found_losses, losses, strict=True),
            *((found[name], parameters[name]) for name in found),
        ]:
            assert torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-10, atol=1e-12)
