"""Backwards that need not be parted are whole, and nothing gets slower or larger for it."""

from dataclasses import replace

import numpy as np
from hypothesis import given

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.planners.api import plan
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.program.types import Program
from penstock.schedules.ordering.clock import with_split
from penstock.schedules.ordering.fused_backward import join_first
from penstock.schedules.registry import schedule
from penstock.schedules.search.estimate import Estimator
from penstock.schedules.search.greedy import Greedy, Rules
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples

ROUNDING = 1 + 1e-12


def dear(costs: Costs) -> Costs:
    """To part a backward takes a tenth of its weight gradient, and a little."""
    more = costs.weight_grad_s * 0.1 + 0.01
    found = replace(costs, weight_grad_s=costs.weight_grad_s + more, joined_s=costs.joined_s + more)
    found.__dict__["flows"] = costs.flows
    return found


def greedy(costs: Costs) -> Program:
    found = Greedy(costs).run(Rules(True, np.full(costs.num_devices, np.inf)))
    assert found is not None
    return found


@reaches(joined=0.3, some_joined=0.1, several_stages=0.1)
@examples(80)
@given(cases())
def test_parts_of_the_first_stage_that_stand_together_are_joined_and_all_can_be(case: Case) -> None:
    costs = dear(case.costs)
    parted = greedy(costs)
    joined = join_first(parted, costs).near
    assert Estimator(costs).seconds(joined) <= Estimator(costs).seconds(parted) * ROUNDING
    reach("some_joined", not joined.same_actions(parted))
    prove(lower(joined, costs), costs)
    joined = join_first(parted, costs).all
    prove(lower(joined, costs), costs)
    first = joined.stage == 0
    reach("joined", not joined.same_actions(parted))
    reach("several_stages", not first.all())
    assert not (joined.kind[first] == Kind.I).any()
    others = parted.stage > 0
    assert np.array_equal(joined.kind[~first], parted.kind[others])


@reaches(joined_if_dear=0.3)
@examples(40)
@given(cases())
def test_where_parting_is_free_everything_stays_parted(case: Case) -> None:
    costs = replace(case.costs, joined_s=np.zeros(case.costs.num_replicas))
    parted = schedule(with_split(costs, True), "1f1b")
    assert join_first(parted, costs) == (parted, parted)
    reach("joined_if_dear", not join_first(parted, dear(case.costs)).all.same_actions(parted))


def test_h1_does_the_first_devices_backwards_whole() -> None:
    profile, cluster = equal_profile(4), one_host(4)
    costs = dear(price(plan(profile, cluster, 8, planner="balanced", schedule="zb_h1"), profile, cluster))
    program = schedule(costs, "zb_h1")
    kinds = [set(program.kind[program.stage == stage].tolist()) for stage in range(4)]
    assert kinds[0] == {int(Kind.F), int(Kind.B)}
    assert all(found == {int(Kind.F), int(Kind.I), int(Kind.W)} for found in kinds[1:])
