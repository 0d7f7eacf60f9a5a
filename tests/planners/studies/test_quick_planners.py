"""Which problems are quick enough for a planner beside the requested plan: at each limit, and beyond it."""

from dataclasses import replace

import pytest

from penstock.plan.shapes import Shape
from penstock.planners.problem import Problem
from penstock.planners.studies.quick_planners import is_quick, is_quick_for_auto
from tests.support.small import equal_profile, one_host


@pytest.mark.parametrize(
    ("planner", "schedule", "num_units", "num_devices", "most"),
    # 20,000 jobs, three for each device and micro-batch; of some planners and schedules a part of it.
    [
        ("uniform", "1f1b", 1, 2, 3333),
        ("uniform", "zb_h1", 1, 2, 833),
        ("spp", "1f1b", 1, 2, 3333),
        ("bipartition", "1f1b", 1, 2, 833),
        ("bipartition", "zb_h1", 1, 2, 208),
        ("spp", "1f1b", 500, 2, 3333),
        ("spp", "1f1b", 501, 2, 0),  # 1,000 layers times devices
        ("balanced", "1f1b", 501, 2, 3333),
        ("spp", "1f1b", 31, 32, 208),
        ("spp", "1f1b", 1, 33, 0),  # 32 devices
        ("uniform", "1f1b", 1, 40, 166),
        ("auto", "1f1b", 1, 2, 0),
    ],
)
def test_quick_planners(planner: str, schedule: str, num_units: int, num_devices: int, most: int) -> None:
    problem = Problem(equal_profile(num_units), one_host(num_devices), 1, schedule=schedule)
    assert is_quick(planner, replace(problem, num_microbatches=max(most, 1))) == (most > 0)
    assert not is_quick(planner, replace(problem, num_microbatches=most + 1))


@pytest.mark.parametrize(
    ("num_units", "num_devices", "most"),
    # 20,000 jobs, 3,000 layers times devices, 32 devices.
    [(1, 2, 3333), (1500, 2, 3333), (1501, 2, 0), (93, 32, 208), (94, 32, 0), (1, 33, 0)],
)
def test_quick_for_auto(num_units: int, num_devices: int, most: int) -> None:
    problem = Problem(equal_profile(num_units), one_host(num_devices), 1)
    assert is_quick_for_auto(replace(problem, num_microbatches=max(most, 1))) == (most > 0)
    assert not is_quick_for_auto(replace(problem, num_microbatches=most + 1))


def test_the_depth_and_the_chunks_count() -> None:
    problem = Problem(equal_profile(8), one_host(40), 416, pipeline_depth=4)
    looped = replace(problem, num_chunks=2, shape=Shape.LOOP)
    for devices, at_most in ((4, 1666), (2, 3333)):
        part = replace(problem, pipeline_depth=devices)
        assert is_quick("spp", replace(part, num_microbatches=at_most))
        assert not is_quick("spp", replace(part, num_microbatches=at_most + 1))
        assert is_quick_for_auto(replace(part, num_microbatches=at_most))
        assert not is_quick_for_auto(replace(part, num_microbatches=at_most + 1))
    assert is_quick("uniform", replace(looped, num_microbatches=833))
    assert not is_quick("uniform", replace(looped, num_microbatches=834))
