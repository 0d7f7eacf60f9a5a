"""Training accepts what is planned with the restrictions of a measured profile."""

import msgspec
import pytest
import torch

import penstock
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import DeadlockError
from penstock.plan.pricing.pricing import price
from penstock.profile.types import Profile
from penstock.profiler.measurement import measure
from tests.support.runtime.comparison import check
from tests.support.runtime.grid import cluster_of
from tests.support.runtime.models import KINDS, profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train


def vgg_profile() -> Profile:
    """Uneven times, with the restrictions that are measured."""
    torch.manual_seed(0)
    inputs = torch.randn(8, *KINDS["vgg"].shape)
    measured = measure(KINDS["vgg"].model(), inputs, lambda out: out.square().mean(), seconds=0.05)
    assert {item.rule for item in measured.restrictions} == {"sync_replicas"}
    return msgspec.structs.replace(profile_of("vgg"), restrictions=measured.restrictions)


def test_an_order_that_deadlocks_is_not_planned(rank_pool: RankPool) -> None:
    """Without the restriction, the schedule finds an order in which replicas wait for each other."""
    profile, cluster = vgg_profile(), cluster_of(2)
    refused = penstock.plan(profile_of("vgg"), cluster, 4, planner="data_parallel", schedule="auto_fused")
    with pytest.raises(DeadlockError, match=r"stage 0 has replicas on d0, d1, .* deadlock in this replica sync"):
        penstock.evaluate(refused, profile, cluster, strict=False)
    plan = penstock.plan(profile, cluster, 4, planner="data_parallel", schedule="auto_fused")
    assert (plan.stages, plan.order == refused.order) == (refused.stages, False)
    job = Job("vgg", plan, profile, cluster, num_rows=(12, 7))
    check(job, rank_pool.run(2, train, job), exact=False)


def test_auto_trains_batch_norm_with_replicas(rank_pool: RankPool) -> None:
    profile = vgg_profile()
    wire = Wire(bandwidth=1e12)
    devices = tuple(Device(name=f"d{number}", host="h", kind="k") for number in range(2))
    cluster = Cluster(name="fast", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    # One layer takes nearly all of the time, so that only replicas of it help.
    units = tuple(
        msgspec.structs.replace(
            unit,
            times=tuple(msgspec.structs.replace(time, forward_s=10.0 if number == 1 else 1e-3) for time in unit.times),
        )
        for number, unit in enumerate(profile.units)
    )
    profile = msgspec.structs.replace(profile, units=units)
    plan = penstock.plan(profile, cluster, 4, work=40)
    assert price(plan, profile, cluster).restrictions.synced
    job = Job("vgg", plan, profile, cluster, num_rows=(12, 7))
    check(job, rank_pool.run(2, train, job), exact=False)
