"""Exact: against every order of tiny problems, against random orders of larger ones, and against its bounds."""

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import DeadlockError, InputError
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.pricing.restrictions import find_restrictions
from penstock.planners.bounds.bound import lower_bound
from penstock.planners.bounds.unit_seconds import unit_times
from penstock.planners.exact.bounds import map_bounds
from penstock.planners.exact.cp_order import Job
from penstock.planners.exact.maps import all_maps, plan_of_map, runs, stages_of
from penstock.planners.exact.program import lowered_order
from penstock.planners.exact.solve import exact
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.bipartition.planner import bipartition
from penstock.planners.problem import Problem
from penstock.profile.restrictions import Restriction
from penstock.profile.types import Profile
from penstock.program.actions import Kind
from penstock.simulate.evaluation import evaluate, evaluate_costs
from tests.support.planner_cases import unequal
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, clusters, profiles, reach_features
from tests.support.thoroughness import examples

pytest.importorskip("ortools", reason="the exact planner needs OR-tools")


RULES = (("one_stage",), ("no_recompute",), ("no_recompute", "no_transfer"), ("fused_backward",))
"""Restrictions of the first two layers."""


def jobs_of(costs: Costs) -> list[list[Job]]:
    """The compute jobs of every device."""
    solution: list[list[Job]] = [[] for _ in range(costs.num_devices)]
    for stage in range(costs.plan.num_stages):
        ahead, back = int(costs.forward_device[stage]), int(costs.backward_device[stage])
        for number in range(costs.num_microbatches):
            solution[ahead].append((Kind.F, stage, number))
            kinds = [Kind.R, Kind.I, Kind.W] if costs.recompute[stage] else [Kind.I, Kind.W]
            solution[back] += [(kind, stage, number) for kind in kinds]
    return solution


def must_follow(later: Job, earlier: Job) -> bool:
    """Whether one job of a micro-batch depends on the other, directly or not."""
    if later[2] != earlier[2]:
        return False
    if later[0] == Kind.W:
        return earlier[1] == later[1] or earlier[0] == Kind.F or (earlier[0] == Kind.I and earlier[1] > later[1])
    if later[0] == Kind.R:
        return earlier[0] == Kind.F and earlier[1] <= later[1]
    if later[0] == Kind.I:
        if earlier[0] == Kind.R:
            return earlier[1] >= later[1]
        return earlier[0] == Kind.F or (earlier[0] == Kind.I and earlier[1] > later[1])
    return earlier[0] == Kind.F and earlier[1] < later[1]


def all_orders(jobs: Sequence[Job]) -> Iterator[tuple[Job, ...]]:
    """Every order in which no job precedes one that it depends on."""
    if not jobs:
        yield ()
    for job in jobs:
        if not any(must_follow(job, other) for other in jobs if other != job):
            rest = [other for other in jobs if other != job]
            for order in all_orders(rest):
                yield (job, *order)


def with_steps(costs: Costs, orders: Sequence[Sequence[Job]]) -> tuple[tuple[Job, ...], ...]:
    steps: list[list[Job]] = [[] for _ in orders]
    for stage, device in enumerate(costs.backward_device.tolist()):
        steps[device].append((Kind.STEP, stage, 0))
    return tuple((*order, *more) for order, more in zip(orders, steps, strict=True))


def simulated(costs: Costs, orders: tuple[tuple[Job, ...], ...]) -> float:
    program = lowered_order(costs, orders)
    return evaluate_costs(costs, program=program, within_memory=False).timeline.iteration_s


def every_time(problem: Problem, *, remote_backward: bool) -> Iterator[float]:
    """The times of all maps in all orders."""
    maps = all_maps(problem, remote_backward=remote_backward, recompute=True)
    for index in range(len(maps.forward)):
        costs = price(plan_of_map(problem, maps, index), problem.profile, problem.cluster)
        for orders in product(*[list(all_orders(jobs)) for jobs in jobs_of(costs)]):
            with contextlib.suppress(DeadlockError):  # valid for each device, but not together
                yield simulated(costs, with_steps(costs, orders))


@pytest.mark.parametrize("seed", range(3))
def test_one_microbatch_against_every_map_and_order(seed: int) -> None:
    problem = unequal(seed, 2, 2, 1)
    solution = exact(problem)
    assert solution.proved
    assert solution.makespan_s == pytest.approx(min(every_time(problem, remote_backward=True)), rel=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_two_microbatches_against_every_order(seed: int) -> None:
    # Micro-batches in any order: running them in turn is optimal too.
    problem = unequal(seed, 2, 2, 2)
    solution = exact(problem, remote_backward=False)
    assert solution.proved
    assert solution.makespan_s == pytest.approx(min(every_time(problem, remote_backward=False)), rel=1e-6)


@reaches(slower=0.5, several_devices=0.3, tight=0.1)
@examples(12)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_no_other_map_and_order_is_faster(seed: int, draw: random.Random) -> None:
    problem = unequal(seed, 4, 3, 2)
    best = exact(problem)
    assert best.proved
    maps = all_maps(problem, remote_backward=True, recompute=True)
    bounds = map_bounds(unit_times(problem), maps)
    for _ in range(10):
        index = draw.randrange(len(maps.forward))
        costs = price(plan_of_map(problem, maps, index), problem.profile, problem.cluster)
        # Random times that rise along all dependencies: F up the stages, then I down, then W.
        last = 2 * costs.plan.num_stages
        delay = [draw.random() * last for _ in range(costs.num_microbatches)]

        def when(job: Job, last: int = last, delay: Sequence[float] = delay) -> float:
            level = {Kind.F: job[1], Kind.R: last - job[1] - 0.6, Kind.I: last - job[1] - 0.5}
            return delay[job[2]] + level.get(job[0], last - job[1] - 0.4 + draw.random() * last)

        orders = [sorted(jobs, key=when) for jobs in jobs_of(costs)]
        taken = simulated(costs, with_steps(costs, orders))
        assert bounds[index] <= taken * (1 + 1e-9)
        assert best.makespan_s <= taken * (1 + 1e-6)
        reach("slower", best.makespan_s < taken * (1 - 1e-6))
        reach("tight", bounds[index] > 0.9 * taken)
    reach("several_devices", len(best.plan.devices) > 1)


def test_any_small_problem() -> None:
    reached: Counter[str] = Counter()

    @reaches(several_devices=0.02, faster=0.05, restricted=0.05)
    @examples(200)
    @given(
        profiles(max_units=3, overheads=True),
        clusters(max_devices=3),
        st.integers(1, 3),
        st.booleans(),
        st.sampled_from(((),) * 5 + RULES),
    )
    def check(profile: Profile, cluster: Cluster, num: int, remote_backward: bool, rules: tuple[str, ...]) -> None:
        if profile.num_units > 1:
            profile = restricted(profile, **dict.fromkeys(rules, (0, 1)))
            reach("restricted", bool(rules))
        problem = Problem(profile, cluster, num, schedule="zb_h1")
        check_solution(problem, remote_backward, reached)

    check()
    assert reached["proved"] >= 10, reached
    assert reached["several devices"] >= 3, reached
    assert reached["compared"] >= 15, reached


def check_solution(problem: Problem, remote_backward: bool, reached: Counter[str]) -> None:
    profile, cluster, num = problem.profile, problem.cluster, problem.num_microbatches
    solution = exact(problem, remote_backward=remote_backward)
    assert solution.at_least_s <= solution.makespan_s
    shared = any(host.interface_bandwidth is not None for host in cluster.hosts)
    assert solution.proved or shared
    # This proves that the plan meets the restrictions, too.
    again = evaluate_costs(price(solution.plan, profile, cluster), program=solution.program, within_memory=False)
    assert again.timeline.iteration_s == solution.makespan_s
    bound = lower_bound(profile, cluster, num, replication=False, remote_backward=remote_backward)
    assert bound.seconds <= solution.makespan_s * (1 + 1e-9)
    # The lower bound is at least that of the best map, and holds for every plan that exact considers.
    maps = all_maps(problem, remote_backward=remote_backward, recompute=True)
    assert solution.at_least_s >= float(map_bounds(unit_times(problem), maps).min()) * (1 - 1e-12)
    reached["proved"] += solution.proved
    reached["several devices"] += len(solution.plan.devices) > 1
    reach_features(Case(profile, cluster, solution.plan))
    for plan in [balanced(problem)] + ([bipartition(problem)] if remote_backward else []):
        rules = find_restrictions(plan, profile)
        if rules.violation is not None or rules.fused:
            continue
        seconds = evaluate(plan, profile, cluster, within_memory=False).timeline.iteration_s
        assert solution.at_least_s <= seconds * (1 + 1e-9)
        if solution.proved:
            assert solution.makespan_s <= seconds * (1 + 1e-6)
        reached["compared"] += 1
        reach("faster", solution.makespan_s < seconds * (1 - 1e-6))


def test_zero_bubble_by_hand() -> None:
    # Two equal layers on two devices, F = I = W = 1, free links, 3 micro-batches: device 1 waits one forward and then
    # works for 9 seconds; device 0 ends its last I one second after device 1 at the latest, and needs no more.
    solution = exact(Problem(equal_profile(2), one_host(2), 3), remote_backward=False)
    assert solution.proved
    assert solution.makespan_s == pytest.approx(10.0)


def test_remote_backward_by_hand() -> None:
    # One layer on two devices, F = 2, I = W = 1, nothing to send, 2 micro-batches: together on one device 8 seconds;
    # apart F F on one, then I W I W on the other from second 2 on: 6.
    problem = Problem(equal_profile(1, forward_s=2.0), one_host(2), 2)
    assert exact(problem, remote_backward=False).makespan_s == pytest.approx(8.0)
    solution = exact(problem)
    assert solution.makespan_s == pytest.approx(6.0)
    assert solution.plan.stages[0].has_remote_backward


def test_recompute_instead_of_transfer_by_hand() -> None:
    # The same, with 100 bytes saved at 1 byte per second, and no input: the transfer takes 100 seconds, recomputing 2
    # for each micro-batch on the second device. F F | R I W R I W from second 2 on would take 10: 8 on one is best.
    profile = equal_profile(1, forward_s=2.0, saved_bytes=100)
    assert exact(Problem(profile, one_host(2), 2)).makespan_s == pytest.approx(8.0)
    # With W = 10 and F = 1 it is 22 seconds of backward: 24 on one device; 1 + 24 if recomputed elsewhere.
    # Twice as fast there: 1 + 12 seconds.
    profile = equal_profile(1, forward_s=1.0, weight_grad_s=10.0, saved_bytes=100)
    cluster = one_host(2)
    devices = (cluster.devices[0], msgspec.structs.replace(cluster.devices[1], speed=2.0))
    cluster = msgspec.structs.replace(cluster, devices=devices)
    assert exact(Problem(profile, cluster, 2)).makespan_s == pytest.approx(12.0)


def restricted(profile: Profile, **rules: tuple[int, ...]) -> Profile:
    items = (Restriction(rule=rule, units=units) for rule, units in rules.items())  # type: ignore[arg-type]
    return msgspec.structs.replace(profile, restrictions=tuple(items))


def test_restrictions_by_hand() -> None:
    # The problem of test_zero_bubble_by_hand with fused backwards is 1F1B: (M + S - 1)(F + B) = 4 x 3.
    two = equal_profile(2)
    solution = exact(Problem(restricted(two, fused_backward=(0, 1)), one_host(2), 3), remote_backward=False)
    assert solution.proved
    assert solution.makespan_s == pytest.approx(12.0)
    together = exact(Problem(restricted(two, one_stage=(0, 1)), one_host(2), 3), remote_backward=False)
    assert together.plan.num_stages == 1
    # The problem of test_remote_backward_by_hand.
    one = equal_profile(1, forward_s=2.0)
    assert exact(Problem(restricted(one, no_recompute=(0,)), one_host(2), 2)).makespan_s == pytest.approx(6.0)
    both = restricted(one, no_recompute=(0,), no_transfer=(0,))
    assert exact(Problem(both, one_host(2), 2)).makespan_s == pytest.approx(8.0)


def test_all_runs() -> None:
    # 3 devices, 6 layers: 3 with one run, 5 cuts x 6 with two, 10 pairs of cuts x 6 with three.
    assignments = list(runs(6, 3))
    assert len(assignments) == len({tuple(devices) for devices in assignments}) == 93
    assert stages_of([0, 0, 1], [0, 1, 1]) == [(0, 1), (1, 2), (2, 3)]


def test_fewer_stages_use_the_first_devices() -> None:
    full = unequal(1, 3, 3, 2)
    solution = exact(Problem(full.profile, full.cluster, 2, pipeline_depth=2))
    assert set(solution.plan.devices) <= {"d0", "d1"}


def test_large_problem_is_an_error() -> None:
    with pytest.raises(InputError, match="too many"):
        exact(Problem(equal_profile(30), one_host(5), 2))
    with pytest.raises(InputError, match="must be positive"):
        exact(Problem(equal_profile(2), one_host(2), 2), seconds=0.0)


def test_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(InputError, match="OR-tools"):
        exact(unequal(4, 6, 3, 3))


def test_out_of_time_is_not_proved() -> None:
    problem = unequal(4, 6, 3, 3)
    solution = exact(problem, seconds=1e-9)
    assert solution.num_solved == 0
    assert not solution.proved
    assert solution.at_least_s < exact(problem).makespan_s < solution.makespan_s


def test_the_stated_size() -> None:
    problem = unequal(0, 6, 3, 3)
    solution = exact(problem)
    assert solution.proved
    # The usual lowering, with few receives posted ahead, is not faster.
    costs = price(solution.plan, problem.profile, problem.cluster)
    usual = evaluate_costs(costs, program=solution.order, within_memory=False).timeline.iteration_s
    assert solution.makespan_s <= usual * (1 + 1e-12)
