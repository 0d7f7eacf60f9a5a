"""The estimate of an order: never above the simulator, equal to it where nothing is left out, above the floor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.shapes import Shape
from penstock.planners.api import plan
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.makespan import makespan_s
from penstock.program.proof.proof import prove
from penstock.program.types import Program, program_from_actions
from penstock.schedules.methods.auto import candidates
from penstock.schedules.registry import schedule
from penstock.schedules.search.estimate import Estimator
from penstock.schedules.search.job_graph import make_job_graph
from penstock.schedules.search.polish import polish
from penstock.schedules.search.polish_kernel import JOBS_BETWEEN_SAVES, Memory, run_polish
from penstock.schedules.search.scoring import score_program
from tests.support.plain_polish import plain_polish
from tests.support.planner_cases import unequal
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, reach_features
from tests.support.thoroughness import examples

CLOSE = 1 + 1e-9


@reaches(below=0.05, exact=0.05, floor_met=0.05, above_floor=0.05)
@examples(100)
@given(cases())
def test_never_above_the_simulator_and_never_below_the_floor(case: Case) -> None:
    costs = case.costs
    estimator = Estimator(costs)
    floor = estimator.floor_s()
    for program in candidates(costs):
        estimate = estimator.seconds(program)
        assert floor <= estimate * CLOSE
        seconds = score_program(program, costs).seconds
        assert estimate <= seconds * CLOSE
        reach("below" if estimate * CLOSE < seconds else "exact", seconds > 0)
        reach("above_floor" if floor * CLOSE < estimate else "floor_met", floor > 0)


@reaches(several_devices=0.1, replicated=0.05, remote=0.05, recompute=0.1, split=0.05)
@examples(100)
@given(cases())
def test_a_program_there_and_back(case: Case) -> None:
    estimator = Estimator(case.costs)
    for name in NAMED_SCHEDULES:
        program = schedule(case.costs, name)
        assert estimator.program_of(estimator.order_of(program)).same_actions(program)
    reach_features(case)


@reaches(faster=0.05)
@examples(100)
@given(cases())
def test_polishing_gives_a_program_that_proves_and_is_no_slower(case: Case) -> None:
    costs = case.costs
    estimator = Estimator(costs)
    program = schedule(costs, "1f1b")
    better = polish(program, costs, estimator)
    prove(lower(better, costs), costs)
    assert estimator.seconds(better) <= estimator.seconds(program)
    reach("faster", estimator.seconds(better) * CLOSE < estimator.seconds(program))


def check_polishing(costs: Costs, program: Program, tightness: float, tolerance: float, num_tries: int) -> float:
    """Polishing gives what its plain twin gives; the seconds."""
    estimator = Estimator(costs)
    order, graph = estimator.order_of(program), make_job_graph(costs)
    before, after = estimator.kept(order)
    held = np.array([before[jobs].sum() for jobs in np.split(order.jobs, order.offsets[1:-1])])
    memory = Memory(before, after, tightness * held)
    arguments = order.offsets, order.jobs, order.seconds, graph, memory, num_tries, tolerance, 0
    jobs, seconds = run_polish(*arguments)
    assert (jobs.tolist(), seconds) == plain_polish(*arguments)
    return float(seconds)


@reaches(limited=0.1, fused=0.1, faster=0.05)
@examples(80)
@given(cases(), st.sampled_from(["1f1b", "gpipe", "zb_h1", "pe"]), st.floats(0.0, 1.0), st.floats(0.0, 0.2))
def test_polishing_is_that_of_the_plain_twin(case: Case, name: str, tightness: float, tolerance: float) -> None:
    program = schedule(case.costs, name)
    seconds = check_polishing(case.costs, program, tightness, tolerance, 60)
    reach("limited", tightness < 0.5)
    reach("fused", bool((program.kind == Kind.B).any()))
    reach("faster", seconds * CLOSE < Estimator(case.costs).seconds(program))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("planner", "name"), [("uniform", "zb_h1"), ("pipedream", "1f1b")])
def test_polishing_resumed_is_that_of_the_plain_twin(seed: int, planner: str, name: str) -> None:
    problem = unequal(seed, num_units=6, num_devices=4, num_microbatches=20)
    chosen = plan(problem.profile, problem.cluster, problem.num_microbatches, planner=planner, schedule=name)
    costs = price(chosen, problem.profile, problem.cluster)
    program = schedule(costs)
    assert program.num_actions >= 2 * JOBS_BETWEEN_SAVES or planner == "pipedream"
    seconds = check_polishing(costs, program, 0.5, 0.05, 150)
    assert seconds <= Estimator(costs).seconds(program)


def test_the_floor_counts_what_follows_the_passes() -> None:
    """On two replicas nothing but their passes, the reduction and the step counts, so the floor is the time."""
    profile = equal_profile(2, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, parameter_bytes=8)
    cluster = one_host(2, bandwidth=4.0)
    costs = price(plan(profile, cluster, 4, planner="data_parallel", schedule="1f1b"), profile, cluster)
    program = schedule(costs)
    assert costs.reductions[0].ring.occupancy_s > 0
    expected = makespan_s(prove(lower(program, costs), costs))
    assert Estimator(costs).floor_s() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1", "pe"])
def test_equal_to_the_simulator_on_a_row_with_transfers(name: str) -> None:
    profile = equal_profile(4, forward_s=1.0, input_grad_s=1.5, weight_grad_s=0.5, saved_bytes=10, cut_bytes=4)
    cluster = one_host(4, bandwidth=8.0)
    costs = price(plan(profile, cluster, 6, planner="uniform", schedule=name), profile, cluster)
    program = schedule(costs)
    expected = makespan_s(prove(lower(program, costs), costs))
    assert Estimator(costs).seconds(program) == pytest.approx(expected, rel=1e-12)


def test_polishing_keeps_to_the_memory() -> None:
    profile = equal_profile(4, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, saved_bytes=1000)
    cluster = one_host(4, memory_bytes=4000)
    costs = price(plan(profile, cluster, 12, planner="uniform", schedule="1f1b"), profile, cluster)
    better = polish(schedule(costs, "zb_h1"), costs, Estimator(costs))
    assert np.all(prove(lower(better, costs), costs).peak_bytes <= 4000)


def swapped(program: Program, device: str, index: int) -> Program:
    """The program with two neighbouring actions of a device exchanged."""
    orders = [list(program.actions(name)) for name in program.devices]
    order = orders[program.devices.index(device)]
    order[index : index + 2] = reversed(order[index : index + 2])
    return program_from_actions(program.plan, program.devices, orders)


@pytest.mark.parametrize(("num_stages", "num_microbatches"), [(2, 4), (3, 5), (4, 6)])
def test_polishing_repairs_a_spoilt_order(num_stages: int, num_microbatches: int) -> None:
    """Every exchange of two neighbours that costs time is undone, to the zero-bubble bound of equal stages."""
    profile = equal_profile(num_stages, saved_bytes=1, cut_bytes=0)
    cluster = one_host(num_stages)
    chosen = plan(profile, cluster, num_microbatches, planner="uniform", schedule="auto", shape=Shape.STRAIGHT)
    costs = price(chosen, profile, cluster)
    estimator = Estimator(costs)
    bound = num_stages - 1 + 3 * num_microbatches
    program = schedule(costs)
    assert estimator.seconds(program) == pytest.approx(bound, rel=1e-12)
    num_spoilt = 0
    for device in program.devices:
        for index in range(len(list(program.actions(device))) - 1):
            spoilt = swapped(program, device, index)
            if bound * CLOSE < estimator.seconds(spoilt) < np.inf:
                num_spoilt += 1
                assert estimator.seconds(polish(spoilt, costs, estimator)) == pytest.approx(bound, rel=1e-12)
    assert num_spoilt >= 3
