"""Balanced: no other cuts are better, on devices of any speed."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.shapes import Shape
from penstock.planners.api import plan
from penstock.planners.methods.balanced import balanced_cuts
from penstock.planners.problem import Problem
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.strategies import sizes_up_to
from tests.support.thoroughness import examples

SPEEDS = st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0])


def slowest(seconds: list[float], speeds: list[float], cuts: tuple[int, ...]) -> float:
    return max(sum(seconds[a:b]) / speed for (a, b), speed in zip(pairwise(cuts), speeds, strict=True))


def best(seconds: list[float], speeds: list[float]) -> float:
    """The slowest stage of the best cuts."""
    units, stages = len(seconds), len(speeds)
    inner = combinations(range(1, units), stages - 1)
    return min(slowest(seconds, speeds, (0, *cuts, units)) for cuts in inner)


@st.composite
def problems(draw: st.DrawFn, values: st.SearchStrategy[float]) -> tuple[list[float], list[float]]:
    num_units = draw(sizes_up_to(9))
    num_stages = draw(sizes_up_to(num_units))
    seconds = draw(st.lists(values, min_size=num_units, max_size=num_units))
    return seconds, draw(st.lists(SPEEDS, min_size=num_stages, max_size=num_stages))


def cuts_of(seconds: list[float], speeds: list[float]) -> tuple[int, ...]:
    sums = np.concatenate([[0.0], np.cumsum(seconds)])
    cuts = tuple(balanced_cuts([sums / speed for speed in speeds]))
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(seconds), len(speeds) + 1)
    assert all(a < b for a, b in pairwise(cuts))
    return cuts


def reach_gain(seconds: list[float], speeds: list[float]) -> None:
    """Several stages on unequal devices, for which as many layers on each are not best."""
    even = tuple(len(seconds) * stage // len(speeds) for stage in range(len(speeds) + 1))
    reach("better_than_even", slowest(seconds, speeds, even) > best(seconds, speeds) * (1 + 1e-9))
    reach("speeds", len(set(speeds)) > 1)


@reaches(better_than_even=0.1, speeds=0.1)
@examples(300)
@given(problems(st.integers(0, 20).map(float)))
def test_no_cuts_are_better_with_whole_numbers(problem: tuple[list[float], list[float]]) -> None:
    # Whole seconds and speeds that are powers of two: everything is exact.
    assert slowest(*problem, cuts_of(*problem)) == best(*problem)
    reach_gain(*problem)


@reaches(better_than_even=0.05, speeds=0.1)
@examples(300)
@given(problems(st.floats(0.0, 1e3)))
def test_no_cuts_are_better_with_any_numbers(problem: tuple[list[float], list[float]]) -> None:
    assert slowest(*problem, cuts_of(*problem)) <= best(*problem) * (1 + 1e-12) + 1e-12 * sum(problem[0])
    reach_gain(*problem)


@reaches(better_than_even=0.05, speeds=0.05, straight=0.01, several_chunks=0.05)
@examples(100)
@given(st.data(), st.sampled_from([(Shape.STRAIGHT, 1), (Shape.LOOP, 2), (Shape.V, 2), (Shape.LOOP, 3)]))
def test_plans_over_every_shape(data: st.DataObject, layout: tuple[Shape, int]) -> None:
    shape, chunks = layout
    devices = data.draw(sizes_up_to(3))
    speeds = data.draw(st.lists(SPEEDS, min_size=devices, max_size=devices))
    jobs = st.tuples(*[st.integers(0, 9)] * 3)
    times = data.draw(st.lists(jobs, min_size=devices * chunks, max_size=9))
    profile, cluster = profile_of(times), cluster_of(speeds)
    result = plan(profile, cluster, 2, planner="balanced", num_chunks=chunks, shape=shape)
    stage_devices = Problem(profile, cluster, 2, num_chunks=chunks, shape=shape).stage_devices
    assert [stage.forward[0].device for stage in result.stages] == [f"d{device}" for device in stage_devices]
    cuts = (0, *(stage.stop for stage in result.stages))
    seconds = [float(sum(entry)) for entry in times]
    along = [speeds[device] for device in stage_devices]
    assert slowest(seconds, along, cuts) == pytest.approx(best(seconds, along), rel=1e-12)
    reach_gain(seconds, along)
    reach("straight" if shape is Shape.STRAIGHT else "several_chunks", devices > 1)


def test_by_hand() -> None:
    # 9 | 1 2 | 6 on equal devices; with the first one three times as fast it also takes what follows.
    assert cuts_of([9, 1, 2, 6], [1.0, 1.0, 1.0])[1] == 1
    assert cuts_of([9, 1, 2, 6], [4.0, 1.0]) == (0, 3, 4)


def test_long_layer_behind_slow_devices() -> None:
    # The long layer belongs on the last device, which is twice as fast as the two before it; filling the first stages
    # as far as possible would leave it to the third.
    assert slowest([0, 0, 0, 1, 0], [0.5, 0.25, 0.25, 0.5], cuts_of([0, 0, 0, 1, 0], [0.5, 0.25, 0.25, 0.5])) == 2.0


def test_many_units_and_devices() -> None:
    sums = np.arange(100_001, dtype=np.float64)
    cuts = balanced_cuts([sums] * 1000)
    assert {b - a for a, b in pairwise(cuts)} == {100}
