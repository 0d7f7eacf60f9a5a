"""Regular grids: every one there is, and auto never worse than any."""

import pytest

from penstock.cluster.load import load_cluster
from penstock.planners.auto.search import auto
from penstock.planners.methods.grids import regular_grids
from penstock.planners.problem import Problem
from penstock.simulate.evaluation import evaluate
from tests.support.small import equal_profile, one_host


def test_all_grids_of_six_devices() -> None:
    grids = list(regular_grids(Problem(equal_profile(12), one_host(6), 2), virtual_stages=False))
    shapes = [(grid.num_stages, grid.stages[0].num_replicas) for grid in grids]
    # 1 x 6; 2 x 3 and 3 x 2 with replicas side by side, then with stages side by side. 6 x 1 has no replicas.
    assert shapes == [(1, 6), (2, 3), (2, 3), (3, 2), (3, 2)]
    names = [[replica.device for replica in stage.forward] for stage in grids[1].stages]
    assert names == [["d0", "d1", "d2"], ["d3", "d4", "d5"]]
    names = [[replica.device for replica in stage.forward] for stage in grids[2].stages]
    assert names == [["d0", "d2", "d4"], ["d1", "d3", "d5"]]


def test_loops_and_vs() -> None:
    grids = list(regular_grids(Problem(equal_profile(5), one_host(4), 2)))
    # Two stages of two: straight, and with two stages per device in a loop and a V; four per device are too many.
    devices = [[stage.forward[0].device for stage in grid.stages] for grid in grids if grid.num_stages > 1]
    assert devices == [
        ["d0", "d2"],
        ["d0", "d1"],
        ["d0", "d2", "d0", "d2"],
        ["d0", "d1", "d0", "d1"],
        ["d0", "d2", "d2", "d0"],
        ["d0", "d1", "d1", "d0"],
    ]


def test_every_unit_once_and_every_device() -> None:
    problem = Problem(equal_profile(9), one_host(8), 2)
    for grid in regular_grids(problem):
        assert grid.num_units == 9
        assert len(grid.devices) == 8


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb_v", "auto"])
def test_auto_is_never_worse(schedule: str) -> None:
    cluster = load_cluster("2 x 4 x X @ 1 kB/s / 0.2 kB/s")
    profile = equal_profile(10, cut_bytes=100, parameter_bytes=300)
    problem = Problem(profile, cluster, 4, schedule=schedule)
    best = evaluate(auto(problem), profile, cluster).timeline.iteration_s
    for grid in regular_grids(problem):
        assert best <= evaluate(grid, profile, cluster).timeline.iteration_s * (1 + 1e-9)
