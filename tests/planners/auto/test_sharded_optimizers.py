"""Auto shards optimizers where memory binds, and only there."""

import pytest

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.types import Stage, on
from penstock.planners.auto.search import search_plans
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.profile.types import Profile, Sizes, Times, Unit


def problem(memory_bytes: int) -> Problem:
    """One layer of 100 bytes for two devices: 400 bytes with gradients and state, 300 with half of the state."""
    times = Times(kind="k", micro_batch_size=4, forward_s=2.0, input_grad_s=1.0, weight_grad_s=1.0, step_s=1.0)
    sizes = Sizes(micro_batch_size=4, cut_bytes=0, saved_bytes=4)
    profile = Profile(
        name="one",
        micro_batch_size=4,
        units=(Unit(name="u", parameter_bytes=100, sizes=(sizes,), times=(times,)),),
    )
    wire = Wire(bandwidth=1e3)
    devices = tuple(Device(name=name, host="h", kind="k", memory_bytes=memory_bytes) for name in ("d0", "d1"))
    cluster = Cluster(name="two", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    return Problem(profile, cluster, 4)


def test_sharded_where_memory_binds() -> None:
    tight = search_plans(problem(350), search_space=SearchSpace(), work=20)
    assert [stage.sharded_optimizer for stage in tight.plan.stages] == [True]
    assert tight.costs.static_bytes.tolist() == [300, 300]
    for space in (SearchSpace(sharded_optimizer=False), SearchSpace(replication=False)):
        short = search_plans(problem(350), search_space=space, work=20)
        assert not any(stage.sharded_optimizer for stage in short.plan.stages)
        assert short.costs.static_bytes.max() == 400
    enough = search_plans(problem(500), search_space=SearchSpace(), work=20)
    assert [(stage.num_replicas, stage.sharded_optimizer) for stage in enough.plan.stages] == [(2, False)]


def test_a_sharded_plan_is_outside_a_space_without() -> None:
    plan = search_plans(problem(350), search_space=SearchSpace(), work=1).plan
    space = SearchSpace(sharded_optimizer=False)
    assert space.excluded_feature(plan, problem(350).cluster) == "sharded_optimizer"
    with pytest.raises(ValueError, match="several replicas"):
        Stage(start=0, stop=1, forward=on("d0"), backward=on("d0"), sharded_optimizer=True)
