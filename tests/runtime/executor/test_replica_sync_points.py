"""Batch norm in stages that several ranks share: the statistics of all rows, and nobody waits for ever."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import penstock
from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan
from penstock.program.actions import parse_action
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.program.types import program_from_actions
from penstock.runtime.layout.compile import placeholder_cluster, placeholder_profile
from penstock.runtime.layout.layout import make_layout
from penstock.runtime.layout.replica_sync_proof import check_replica_sync
from penstock.runtime.remote_backward.transfer import AS_PLANNED, KEPT, SENT
from penstock.runtime.stage.sync_batch_norm import batch_norm
from tests.support.runtime.comparison import check
from tests.support.runtime.grid import cluster_of
from tests.support.runtime.models import KINDS, profile_of
from tests.support.runtime.odd_blocks import recomputed_norms
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train
from tests.support.runtime.user_models import only_make, plan_of

torch.set_num_threads(1)


def shared(**options: Any) -> Plan:
    return plan_of([0, 5, 11], [["d0", "d1"], ["d1"]], **options)


PLANS: dict[str, Plan] = {
    "at home": shared(),
    "apart": shared(schedule="zb_h1"),
    "run again": shared(recompute=True),
    "moved": shared(backward=[["d1", "d2"], ["d1"]]),
    "moved and apart": shared(backward=[["d2", "d0"], ["d0"]], schedule="zb_h1"),
    "moved and run again": shared(backward=[["d2", "d0"], ["d0"]], recompute=True),
    "moved in part": shared(backward=[["d0", "d2"], ["d1"]]),
    "behind another": plan_of([0, 1, 6, 11], [["d0"], ["d2", "d0", "d1"], ["d1"]]),
    "two of them": plan_of([0, 3, 6, 11], [["d0", "d1"], ["d2", "d1"], ["d2"]], schedule="gpipe"),
}


@pytest.mark.parametrize("name", list(PLANS))
def test_the_numbers_of_one_process(rank_pool: RankPool, name: str) -> None:
    # With few rows, some members have none of some micro-batches.
    made = Job("vgg", PLANS[name], None, None, num_rows=(13, 2, 5, 4), double=True)
    ranks = rank_pool.run(3, train, made)
    check(made, ranks, exact=False, tolerance=1e-10)
    moved = {"moved": SENT, "moved and apart": SENT, "moved and run again": AS_PLANNED, "moved in part": SENT}
    if name in moved:
        kept = {KEPT} if name == "moved in part" else set()
        assert {rank.mechanisms[0] for rank in ranks if 0 in rank.mechanisms} == {moved[name]} | kept
    made = Job("vgg", PLANS[name], None, None, num_rows=(12, 7))
    check(made, rank_pool.run(3, train, made), exact=False)


def test_a_stage_that_cannot_be_shipped(rank_pool: RankPool) -> None:
    losses, grads, _ = recomputed_norms(None)
    for backward in ([["d1", "d2"], ["d1"]], [["d0", "d2"], ["d1"]]):
        plan = plan_of([0, 3, 4], [["d0", "d1"], ["d2"]], backward=backward)
        ranks = rank_pool.run(3, recomputed_norms, plan)
        assert any("Hidden keeps tensors as attributes" in told.get(0, "") for _, _, told in ranks)
        for found_losses, found, _ in ranks:
            assert all(map(torch.allclose, found_losses, losses))
            assert all(torch.allclose(found[name], grads[name], rtol=1e-10, atol=1e-12) for name in found)


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 5), (6, 4, 3, 3)])
@pytest.mark.parametrize("affine", [False, True])
def test_alone_it_is_torchs_batch_norm(shape: tuple[int, ...], affine: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64) * 3 + 100
    out_grad = torch.randn(shape, dtype=torch.float64)

    def outcome(call: Callable[..., Tensor]) -> list[Tensor]:
        leaf = x.clone().requires_grad_()
        mean, var = torch.full((4,), 0.5).double(), torch.full((4,), 2.0).double()
        weights = [torch.full((4,), 1.5).double().requires_grad_() for _ in range(2)] if affine else []
        out = call(leaf, mean, var, *weights)
        found = torch.autograd.grad(out, [leaf, *weights], out_grad)
        return [out, *found, mean, var]

    wanted = outcome(partial(F.batch_norm, training=True))
    for one, other in zip(outcome(partial(batch_norm, lambda mine: mine)), wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-11)


def test_a_low_precision_input() -> None:
    x = torch.randn(8, 4).bfloat16().requires_grad_()
    weight, bias = torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    out = batch_norm(lambda mine: mine, x, None, None, weight, bias)
    torch.autograd.backward(out.float().square().sum())
    assert (out.dtype, x.grad is not None and x.grad.dtype) == (torch.bfloat16, torch.bfloat16)
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32


def check_orders(cuts: Sequence[int], *texts: str) -> None:
    """What is said of jobs in these orders, with all stages on d0 and d1."""
    plan = plan_of(cuts, [["d0", "d1"]] * (len(cuts) - 1), num_microbatches=2)
    blocks = find_blocks(KINDS["vgg"].model())
    costs = price(plan, placeholder_profile(blocks, 4), placeholder_cluster(plan), strict=False)
    orders = [[parse_action(text) for text in order.split()] for order in texts]
    program = lower(program_from_actions(plan, ["d0", "d1"], orders), costs)
    check_replica_sync(prove(program, costs), make_layout(costs, blocks))


@pytest.mark.parametrize(
    ("cuts", "first", "second", "microbatch"),
    [
        ([0, 11], "0F0 0F1 0B0 0B1", "0F1 0F0 0B0 0B1", "0|1"),
        ([0, 11], "0F0 0F1 0B0 0B1", "0F0 0F1 0B1 0B0", "0|1"),
        ([0, 11], "0F0 0B0 0F1 0B1", "0F0 0F1 0B0 0B1", "0|1"),
        ([0, 3, 11], "0F0 0F1 1F0 1B0 0B0 1F1 1B1 0B1", "0F0 1F0 0F1 1B0 0B0 1F1 1B1 0B1", "0|1"),
    ],
)
def test_orders_that_do_not_fit_together(cuts: Sequence[int], first: str, second: str, microbatch: str) -> None:
    check_orders(cuts, first, first)
    check_orders(cuts, second, second)
    with pytest.raises(InputError, match=rf"has batch norm and replicas on d0, d1, .* \(micro-batch ({microbatch})\)"):
        check_orders(cuts, first, second)


def test_orders_that_differ_and_fit_together() -> None:
    """Input and weight gradients apart, or both at once: the weight gradients are not met for."""
    check_orders([0, 11], "0F0 0F1 0I0 0W0 0I1 0W1", "0F0 0F1 0I0 0I1 0W1 0W0")
    check_orders([0, 11], "0F0 0F1 0B0 0B1", "0F0 0F1 0I0 0I1 0W0 0W1")
    # There is no batch norm in the second stage.
    check_orders([0, 6, 11], "0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1", "0F0 0F1 1F1 1F0 1B1 1B0 0B0 0B1")


def test_every_rank_refuses_orders_that_do_not_fit_together(rank_pool: RankPool) -> None:
    """The schedule has found one: a member has a forward before a backward that the other has behind it."""
    # A profile that does not have the batch norm: only the model shows it.
    profile, cluster = msgspec.structs.replace(profile_of("vgg"), restrictions=()), cluster_of(2)
    plan = penstock.plan(profile, cluster, 4, planner="data_parallel", schedule="auto_fused")
    outcomes = rank_pool.outcomes(2, only_make, "vgg", plan, profile, cluster)
    assert {found[0] for _, found in outcomes} == {"InputError"}
    assert all("has batch norm and replicas on d" in found[1] for _, found in outcomes)
