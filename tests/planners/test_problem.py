"""Problems: invalid ones are errors, and every planner gives programs that every schedule can run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.plan.pricing.pricing import price
from penstock.plan.shapes import Shape
from penstock.planners.api import Options, plan
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS, find_planner
from penstock.planners.search_space import SearchSpace
from penstock.profile.types import Profile
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.schedules.registry import schedule
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.strategies import NAMED_SCHEDULES, Case, clusters, profiles, reach_features
from tests.support.thoroughness import examples

PROFILE, CLUSTER = profile_of([(1, 1, 1)] * 5), cluster_of([1.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_microbatches": 0}, r"number of micro-batches \(0\) must be at least 1"),
        ({"num_microbatches": -3}, r"\(-3\) must be at least 1"),
        ({"num_microbatches": 2**16 + 1}, "number of micro-batches .* at most 65536"),
        ({"micro_batch_size": 0}, r"micro-batch size \(0\) must be at least 1"),
        ({"micro_batch_size": 2**40 + 1}, "micro-batch size .* at most 1099511627776"),
        ({"num_chunks": 0, "shape": Shape.LOOP}, r"stages per device \(0\) must be at least 1"),
        ({"num_chunks": 2}, "a straight pipeline has 1 stage per device, not 2"),
        ({"pipeline_depth": 0}, r"pipeline depth \(0\) must be at least 1 and at most the number of devices \(3\)"),
        ({"pipeline_depth": 4}, r"pipeline depth \(4\) must be at least 1 and at most the number of devices \(3\)"),
        (
            {"pipeline_depth": 3, "num_chunks": 2, "shape": Shape.V},
            r"number of stages \(6\) must be at most the number of layers \(5\)",
        ),
        (
            {"num_chunks": 6, "shape": Shape.LOOP},
            r"number of stages per device \(6\) must be at most the number of layers \(5\)",
        ),
    ],
)
def test_invalid_problem(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem(PROFILE, CLUSTER, **({"num_microbatches": 1} | options))


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="unknown planner 'best'") as caught:
        find_planner("best")
    assert "uniform, balanced, data_parallel" in caught.value.hint
    with pytest.raises(InputError, match="unknown schedule 'best'"):
        plan(PROFILE, CLUSTER, 1, schedule="best")


def test_stage_devices() -> None:
    assert Problem(PROFILE, CLUSTER, 1).stage_devices == [0, 1, 2]
    assert Problem(PROFILE, CLUSTER, 1, pipeline_depth=2).stage_devices == [0, 1]
    # Five layers are enough for two stages per device on two devices only.
    assert Problem(PROFILE, CLUSTER, 1, num_chunks=2, shape=Shape.V).stage_devices == [0, 1, 1, 0]
    assert Problem(PROFILE, CLUSTER, 1, num_chunks=5, shape=Shape.LOOP).stage_devices == [0] * 5


def test_schedule_determines_shape() -> None:
    def names(**options: Any) -> list[str]:
        result = plan(PROFILE, CLUSTER, 2, planner="balanced", **options)
        return [stage.forward[0].device for stage in result.stages]

    assert names() == ["d0", "d1", "d2"]
    assert names(schedule="zb_v") == ["d0", "d1", "d1", "d0"]
    assert names(schedule="interleaved") == ["d0", "d1", "d0", "d1"]
    assert names(schedule="zb_v", shape=Shape.STRAIGHT) == ["d0", "d1", "d2"]
    assert names(schedule="interleaved", num_chunks=1) == ["d0", "d1", "d2"]


def test_plan_records_its_problem() -> None:
    result = plan(PROFILE, CLUSTER, 7, micro_batch_size=3, planner="uniform", schedule="zb_h1", split_backward=True)
    assert (result.planner, result.schedule, result.num_microbatches, result.micro_batch_size) == (
        "uniform",
        "zb_h1",
        7,
        3,
    )
    assert result.split_backward
    assert (result.profile.digest, result.cluster.digest) == (PROFILE.digest, CLUSTER.digest)
    assert plan(PROFILE, CLUSTER, 1, planner="uniform").micro_batch_size == PROFILE.micro_batch_size


def test_auto_is_the_default_and_takes_a_search_space() -> None:
    result = plan(PROFILE, CLUSTER, 2, work=5)
    assert result.planner == "auto"
    assert result == plan(PROFILE, CLUSTER, 2, planner="auto", schedule="auto", work=5, seed=0)
    bare = plan(PROFILE, CLUSTER, 2, work=5, search_space=SearchSpace(replication=False, two_cuts=False))
    assert all(item.num_replicas == 1 and not item.has_remote_backward for item in bare.stages)
    assert plan(PROFILE, CLUSTER, 2, work=5, schedule="1f1b").schedule == "1f1b"
    assert plan(PROFILE, CLUSTER, 2, work=5, search_space=SearchSpace(schedule="gpipe")).schedule == "gpipe"
    with pytest.raises(InputError, match="work: only the planner auto accepts these options, not uniform"):
        plan(PROFILE, CLUSTER, 2, planner="uniform", work=5)
    with pytest.raises(InputError, match=r"must be at most .* for the planner auto"):
        plan(PROFILE, cluster_of([1.0] * 64), 2**16)


@reaches(several_stages=0.1, several_devices=0.1, replicated=0.03, remote=0.01, chunks=0.03, straight=0.03)
@examples(60)
@given(profiles(), clusters() | clusters(fast=True), st.data())
def test_every_planned_program_proves(profile: Profile, cluster: Cluster, data: st.DataObject) -> None:
    num = data.draw(st.integers(1, 5))
    shape = data.draw(st.sampled_from(list(Shape)))
    chunks = 1 if shape is Shape.STRAIGHT else data.draw(st.integers(1, profile.num_units))
    most = min(cluster.num_devices, profile.num_units // chunks)
    stages = data.draw(st.none() | st.integers(1, most))
    for planner in PLANNERS:
        options: Options = {"planner": planner, "pipeline_depth": stages, "num_chunks": chunks, "shape": shape}
        if planner == "auto":
            options["work"] = 10
        result = plan(profile, cluster, num, **options)
        costs = price(result, profile, cluster)
        reach_features(Case(profile, cluster, result))
        for name in NAMED_SCHEDULES:
            prove(lower(schedule(costs, name), costs), costs)
    reach("chunks", chunks > 1)
    reach("straight", shape is Shape.STRAIGHT)
