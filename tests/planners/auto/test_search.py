"""The planner auto: never worse than any other planner with any schedule; the same seed, the same plan."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import MemoryLimitError
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan, Replica
from penstock.planners.api import plan
from penstock.planners.auto.moves import Moves
from penstock.planners.auto.search import auto
from penstock.planners.auto.search_state import Progress
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS
from penstock.planners.search_space import SearchSpace
from penstock.profile.types import Profile
from penstock.program.lowering.lowering import lower
from penstock.program.makespan import makespan_s
from penstock.program.proof.proof import prove
from penstock.schedules.registry import schedule
from penstock.schedules.search.scoring import score_program
from penstock.simulate.evaluation import evaluate
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, clusters, profiles, reach_features
from tests.support.thoroughness import examples


def _seconds(candidate: Plan, profile: Profile, cluster: Cluster) -> float:
    return evaluate(candidate, profile, cluster).timeline.iteration_s


def test_never_worse_than_any_other_planner_with_any_schedule() -> None:
    compared: Counter[tuple[str, str]] = Counter()
    pairs = [(planner, name) for planner in PLANNERS if planner != "auto" for name in NAMED_SCHEDULES]
    num_cases = 0

    @reaches(better=0.05, several_devices=0.1)
    @examples(12)
    @given(profiles(overheads=True), clusters() | clusters(fast=True), st.integers(1, 4))
    def check(profile: Profile, cluster: Cluster, num: int) -> None:
        nonlocal num_cases
        num_cases += 1
        candidate = auto(Problem(profile, cluster, num), work=10)
        seconds = _seconds(candidate, profile, cluster)
        reach("several_devices", len(candidate.devices) > 1)
        others = []
        for planner, name in pairs:
            # The speeds of random devices differ so little that every planner has a plan.
            other = plan(profile, cluster, num, planner=planner, schedule=name)
            others.append(_seconds(other, profile, cluster))
            assert seconds <= others[-1] * (1 + 1e-12)  # sums in another order
            compared[planner, name] += 1
        reach("better", seconds * (1 + 1e-9) < min(others))

    check()
    assert num_cases >= 8
    assert compared == dict.fromkeys(pairs, num_cases)


def test_same_seed_same_plan() -> None:
    problem = Problem(equal_profile(7, cut_bytes=1, saved_bytes=3), one_host(3, bandwidth=2.0), 4)
    assert auto(problem, work=60, seed=5) == auto(problem, work=60, seed=5)


def test_the_search_finds_two_sets_of_cuts() -> None:
    """Layers that one set of cuts cannot balance, and two sets can."""
    profile = equal_profile(3)
    times = [(1.0, 1.0, 1.0), (4.0, 1.0, 1.0), (1.0, 1.0, 1.0)]
    units = tuple(
        msgspec.structs.replace(
            unit,
            times=(msgspec.structs.replace(unit.times[0], forward_s=f, input_grad_s=i, weight_grad_s=w),),
        )
        for unit, (f, i, w) in zip(profile.units, times, strict=True)
    )
    uneven = msgspec.structs.replace(profile, units=units)
    problem = Problem(uneven, one_host(2, bandwidth=1e9), 8)
    ordinary = SearchSpace(replication=False, two_cuts=False, virtual_stages=False, recomputation=False)
    two_sets = SearchSpace(replication=False, virtual_stages=False, recomputation=False)
    one = _seconds(auto(problem, search_space=ordinary), uneven, problem.cluster)
    two = _seconds(auto(problem, search_space=two_sets), uneven, problem.cluster)
    assert two < one


def test_plans_stay_within_the_search_space() -> None:
    problem = Problem(
        equal_profile(6, saved_bytes=1000, cut_bytes=1), one_host(3, bandwidth=100.0, memory_bytes=8000), 6
    )
    none = SearchSpace(replication=False, two_cuts=False, virtual_stages=False, recomputation=False)
    candidate = auto(problem, search_space=none)
    assert all(
        item.num_replicas == 1 and not item.has_remote_backward and not item.recompute for item in candidate.stages
    )
    devices = [item.forward[0].device for item in candidate.stages]
    assert len(set(devices)) == len(devices)


def test_fits_where_only_recomputation_does() -> None:
    # Memory for the weights and one micro-batch of one layer; four micro-batches are in flight at the first stage.
    profile = equal_profile(4, saved_bytes=1000, cut_bytes=10)
    problem = Problem(profile, one_host(2, bandwidth=1e6, memory_bytes=2500), 4)
    costs = price(auto(problem), profile, problem.cluster)
    prove(lower(schedule(costs), costs), costs)
    with pytest.raises(MemoryLimitError):
        _seconds(plan(profile, problem.cluster, 4, planner="balanced"), profile, problem.cluster)


def test_progress_can_stop_it() -> None:
    problem = Problem(equal_profile(6, cut_bytes=1), one_host(3), 4)
    seen: list[Progress] = []

    def report(progress: Progress) -> bool:
        seen.append(progress)
        return len(seen) < 12

    auto(problem, work=10_000, report=report)
    assert 12 <= len(seen) < 40
    assert [item.best for item in seen] == sorted((item.best for item in seen), reverse=True)


def test_every_change_is_a_plan_that_proves() -> None:
    num_changes = 0

    @reaches(changed=0.2, replicated=0.05, remote=0.05, recompute=0.05)
    @examples(120)
    @given(cases(), st.integers(0, 2**32))
    def check(case: Case, seed: int) -> None:
        nonlocal num_changes
        num_changes += check_changes(case, seed)

    check()
    assert num_changes >= 50


def check_changes(case: Case, seed: int) -> int:
    """Draw some changes; the number of those that were possible."""
    names = [device.name for device in case.cluster.devices]

    def group_of(replicas: object) -> tuple[Replica, ...]:
        assert isinstance(replicas, list)
        return tuple(Replica(name, 1 / len(replicas)) for name in replicas)

    moves = Moves(seed, names, group_of)
    candidate = case.plan
    num_changes = 0
    for _ in range(12):
        changed = moves.draw(candidate)
        if changed is not None:
            candidate = changed
            num_changes += 1
            reach("changed")
            reach_features(Case(case.profile, case.cluster, candidate))
            costs = price(candidate, case.profile, case.cluster)
            proof = prove(lower(schedule(costs), costs), costs)
            score = score_program(schedule(costs), costs)
            assert score.seconds == makespan_s(proof)
            assert (score.over_bytes > 0) == bool((proof.peak_bytes > costs.memory_limit + 0.5).any())
            assert np.isfinite(score.seconds)
    return num_changes
