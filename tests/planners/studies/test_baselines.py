"""Comparison of planners: plans are made once per shape, and ratios are those of the best plans."""

from collections import Counter

import pytest
from hypothesis import given

from penstock.cluster.types import Cluster
from penstock.errors import ProofError
from penstock.plan.types import Plan
from penstock.planners.api import make_problem, plan
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS, find_planner
from penstock.planners.studies.baselines import (
    SCHEDULE_DEPENDENT,
    Entry,
    best_of_each,
    compare_planners,
    iteration_ratios,
)
from penstock.profile.types import Profile
from penstock.schedules.registry import SCHEDULES
from penstock.simulate.evaluation import evaluate
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import NAMED_SCHEDULES, clusters, profiles
from tests.support.thoroughness import examples

FIXED = [name for name in PLANNERS if name not in SCHEDULE_DEPENDENT]


def _unexpected(planner: str, problem: Problem, error: ProofError) -> None:
    raise AssertionError(f"{planner} + {problem.schedule}: {error}")


def test_plans_shared_between_schedules_equal_separate_ones() -> None:
    compared: Counter[str] = Counter()
    num_cases = 0

    @reaches(differ=0.1, several_devices=0.1)
    @examples(8)
    @given(profiles(overheads=True), clusters())
    def check(profile: Profile, cluster: Cluster) -> None:
        nonlocal num_cases
        num_cases += 1
        seconds = set()
        for planner in FIXED:
            problems = [
                (planner, make_problem(profile, cluster, 3, planner=planner, schedule=name)) for name in NAMED_SCHEDULES
            ]
            # The speeds of random devices differ so little that every planner has a plan.
            for entry in compare_planners(
                problems, lambda name, problem: find_planner(name).plan(problem), _unexpected
            ):
                alone = plan(profile, cluster, 3, planner=planner, schedule=entry.schedule)
                assert entry.outcome.iteration_s == evaluate(alone, profile, cluster).timeline.iteration_s
                compared[planner] += 1
                seconds.add(entry.outcome.iteration_s)
                reach("several_devices", len(alone.devices) > 1)
        reach("differ", len(seconds) > 1)

    check()
    assert num_cases >= 8
    assert compared == dict.fromkeys(FIXED, num_cases * len(NAMED_SCHEDULES))


def test_plans_are_made_once_per_shape() -> None:
    profile, cluster = equal_profile(6), one_host(3)
    calls: Counter[str] = Counter()

    def plan_one(planner: str, problem: Problem) -> Plan:
        calls[planner] += 1
        return find_planner(planner).plan(problem)

    problems = [
        (planner, make_problem(profile, cluster, 4, planner=planner, schedule=name))
        for planner in ("balanced", "bipartition")
        for name in SCHEDULES
    ]
    entries = list(compare_planners(problems, plan_one, _unexpected))
    assert calls == {"balanced": 3, "bipartition": len(SCHEDULES)}  # straight, loop, v
    assert [(entry.planner, entry.schedule) for entry in entries] == [(name, item.schedule) for name, item in problems]


def test_ratios() -> None:
    profile, cluster = equal_profile(4), one_host(2)

    def entry(planner: str, schedule: str, stages: int) -> Entry:
        problem = make_problem(profile, cluster, 4, planner="uniform", schedule=schedule, pipeline_depth=stages)
        ((_, _, planning_s, outcome),) = compare_planners(
            [("uniform", problem)], lambda _, item: find_planner("uniform").plan(item), _unexpected
        )
        return Entry(planner, schedule, planning_s, outcome)

    # One device: 4 * 12 = 48 s; two stages of 6 s: 5 * 6 = 30 s.
    entries = [entry("one", "gpipe", 1), entry("two", "gpipe", 2), entry("two", "1f1b", 2)]
    assert [(item.planner, item.schedule) for item in best_of_each(entries)] == [("two", "gpipe"), ("one", "gpipe")]
    table = {item.planner: item.times_as_long_as for item in iteration_ratios(entries)}
    assert table["one"] == pytest.approx({"two": 1.6, "one": 1.0})
    assert table["two"] == pytest.approx({"two": 1.0, "one": 0.625})


def test_planners_that_never_fit_are_omitted() -> None:
    profile, cluster = equal_profile(4, parameter_bytes=100), one_host(2, memory_bytes=900)
    problems = [(name, Problem(profile, cluster, 4)) for name in ("balanced", "data_parallel")]
    entries = list(compare_planners(problems, lambda name, problem: find_planner(name).plan(problem), _unexpected))
    # 200 bytes with gradients and optimizer: 800 of 900; everything on each: 1,600.
    assert [entry.outcome.fits for entry in entries] == [True, False]
    assert [item.planner for item in iteration_ratios(entries)] == ["balanced"]
    assert entries[1].outcome.short_of_memory.startswith("d0 needs")
    assert [(item.peak_bytes, item.memory_bytes) for item in entries[0].outcome.devices] == [(800.0, 900.0)] * 2
