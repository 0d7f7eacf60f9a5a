"""The planner auto: never worse than any other planner with any schedule; the same seed, the same plan."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import InputError, MemoryLimitError
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan, Replica
from penstock.planners.api import plan
from penstock.planners.auto.moves import Moves
from penstock.planners.auto.search import Progress, auto
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
from tests.support.small import equal_profile, one_host
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, clusters, profiles
from tests.support.thoroughness import examples


def _seconds(made: Plan, profile: Profile, cluster: Cluster) -> float:
    return evaluate(made, profile, cluster).timeline.iteration_s


@examples(12)
@given(profiles(overheads=True), clusters(), st.integers(1, 4))
def test_never_worse_than_any_other_planner_with_any_schedule(profile: Profile, cluster: Cluster, num: int) -> None:
    found = _seconds(auto(Problem(profile, cluster, num), work=10), profile, cluster)
    for planner in PLANNERS:
        for name in NAMED_SCHEDULES:
            if planner != "auto":
                try:
                    other = plan(profile, cluster, num, planner=planner, schedule=name)
                except InputError:
                    continue  # such as a device too slow to take part in data parallelism
                assert found <= _seconds(other, profile, cluster) * (1 + 1e-12)  # sums in another order


def test_same_seed_same_plan() -> None:
    problem = Problem(equal_profile(7, cut_bytes=1, saved_bytes=3), one_host(3, bandwidth=2.0), 4)
    assert auto(problem, work=60, seed=5) == auto(problem, work=60, seed=5)


def test_the_search_finds_two_sets_of_cuts() -> None:
    """Two units that cannot be balanced whole: F 1 B 3 and F 3 B 1... forward and backward apart are even."""
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
    apart = SearchSpace(replication=False, virtual_stages=False, recomputation=False)
    one = _seconds(auto(problem, search_space=ordinary), uneven, problem.cluster)
    two = _seconds(auto(problem, search_space=apart), uneven, problem.cluster)
    assert two < one


def test_freedoms_are_kept() -> None:
    problem = Problem(
        equal_profile(6, saved_bytes=1000, cut_bytes=1), one_host(3, bandwidth=100.0, memory_bytes=8000), 6
    )
    none = SearchSpace(replication=False, two_cuts=False, virtual_stages=False, recomputation=False)
    made = auto(problem, search_space=none)
    assert all(item.num_replicas == 1 and not item.has_remote_backward and not item.recompute for item in made.stages)
    devices = [item.forward[0].device for item in made.stages]
    assert len(set(devices)) == len(devices)


def test_fits_where_only_recomputation_does() -> None:
    # Memory for the weights and one micro-batch of one unit; four micro-batches are in flight at the first stage.
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


@examples(60)
@given(cases(), st.integers(0, 2**32))
def test_every_change_is_a_plan_that_proves(case: Case, seed: int) -> None:
    names = [device.name for device in case.cluster.devices]

    def group_of(replicas: object) -> tuple[Replica, ...]:
        assert isinstance(replicas, list)
        return tuple(Replica(name, 1 / len(replicas)) for name in replicas)

    moves = Moves(seed, names, group_of)
    made = case.plan
    for _ in range(12):
        changed = moves.draw(made)
        if changed is not None:
            made = changed
            costs = price(made, case.profile, case.cluster)
            proof = prove(lower(schedule(costs), costs), costs)
            score = score_program(schedule(costs), costs)
            assert score.seconds == makespan_s(proof)
            assert (score.over_bytes > 0) == bool((proof.peak_bytes > costs.memory_limit + 0.5).any())
            assert np.isfinite(score.seconds)
