"""Restrictions of layers in measured profiles, and that training accepts what is planned with them."""

import msgspec
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

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


class Turned(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x.transpose(0, 1))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Statistics(nn.Module):
    """Batch norm that is not a module of torch, with statistics that may be shared."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.var, training=True)


class OwnGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(self.layer(x).square().sum(), self.layer.weight, create_graph=True)
        return x @ grad


def restrictions(*layers: nn.Module) -> dict[str, tuple[int, ...]]:
    model = nn.Sequential(nn.Linear(4, 4), *layers, nn.Linear(4, 1))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = measure(model, torch.randn(6, 4), lambda out: out.square().mean(), seconds=0.05)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    return {item.rule: item.units for item in found.restrictions}


def test_what_layers_require() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4)
    assert restrictions(nn.ReLU(), nn.Dropout(0.1)) == {}
    assert restrictions(norm, nn.ReLU()) == {"sync_replicas": (1,)}
    assert restrictions(norm.eval()) == {}
    assert restrictions(norm.train(), nn.ReLU(), norm) == {"sync_replicas": (1, 3), "one_stage": (1, 3)}
    assert restrictions(Turned(0.0), Turned(0.0)) == {"same_replicas": (1,)}
    assert restrictions(Turned(0.5), Turned(0.0)) == {"one_replica": (1,), "same_replicas": (1,)}
    assert restrictions(Counting()) == {"no_recompute": (1,)}
    mean = torch.zeros(4)
    assert restrictions(Statistics(mean), Statistics(mean)) == {"one_replica": (1, 2), "one_stage": (1, 2)}
    assert "fused_backward" in restrictions(OwnGradient())


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
    with pytest.raises(
        DeadlockError, match="stage 0 has replicas on d0, d1, which exchange sums over all rows in layer"
    ):
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
