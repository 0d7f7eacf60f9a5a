"""Whatever the proof accepts, runs: random plans with everything in them."""

import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.runtime.chains import train, train_alone
from tests.support.runtime.world import World
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples

torch.set_num_threads(1)


@examples(15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(case=cases(max_microbatches=4).filter(lambda case: len(case.plan.devices) <= 4), num_rows=st.integers(1, 13))
def test_random_plans_give_the_numbers_of_one_process(world: World, case: Case, num_rows: int) -> None:
    compare(world, case, num_rows)


def compare(world: World, case: Case, num_rows: int) -> None:
    """With training in one process."""
    tied = tuple(sorted(case.profile.ties[0].units)) if case.profile.ties else ()
    ranks = world.run(len(case.plan.devices), train, case.plan, tied, num_rows)
    losses, parameters = train_alone(case.plan, tied, num_rows)
    assert {name for _, found, _ in ranks for name in found} == set(parameters)
    for found_losses, found, exact in ranks:
        for one, other in [
            *zip(found_losses, losses, strict=True),
            *((found[name], parameters[name]) for name in found),
        ]:
            assert torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-10, atol=1e-12)
