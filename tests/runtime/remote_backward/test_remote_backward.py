"""Remote backward with sent saved tensors or with recompute: the numbers of a single process."""

from typing import Any

import pytest
import torch

from penstock.plan.types import Plan
from penstock.runtime.remote_backward.transfer import AS_PLANNED, KEPT, SENT
from tests.support.runtime.comparison import check
from tests.support.runtime.odd_blocks import odd_blocks
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train
from tests.support.runtime.user_models import plan_of, train_with_frozen

torch.set_num_threads(1)

CUTS = {"gpt": [0, 1, 3, 5], "vgg": [0, 2, 5, 11], "resnet": [0, 2, 6, 9], "mlp": [0, 2, 5, 7]}


def plan(kind: str, schedule: str, *, recompute: bool) -> Plan:
    """Every stage has its backward on another device than its forward."""
    groups: dict[str, Any] = {"devices": [["d0"], ["d1"], ["d2"]], "backward": [["d2"], ["d0"], ["d1"]]}
    return plan_of(CUTS[kind], schedule=schedule, recompute=recompute, **groups)


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kind", list(CUTS))
def test_all_backwards_remote(rank_pool: RankPool, kind: str, recompute: bool, schedule: str) -> None:
    job = Job(kind, plan(kind, schedule, recompute=recompute), None, None, num_rows=(7, 12, 7))
    ranks = rank_pool.run(3, train, job)
    # The embedding of the GPT is tied: its gradients are summed in another order.
    check(job, ranks, exact=kind != "gpt")
    assert all(set(rank.mechanisms.values()) == {AS_PLANNED if recompute else SENT} for rank in ranks)
    assert [sorted(rank.mechanisms) for rank in ranks] == [[0, 1], [1, 2], [0, 2]]


def test_replicas_with_remote_backward(rank_pool: RankPool) -> None:
    groups: dict[str, Any] = {"devices": [["d0", "d1"], ["d2"]], "backward": [["d1", "d2"], ["d2"]]}
    for kind, cuts in (("gpt", [0, 2, 5]), ("resnet", [0, 3, 9])):
        job = Job(kind, plan_of(cuts, schedule="zb_h1", **groups), None, None, double=True)
        ranks = rank_pool.run(3, train, job)
        check(job, ranks, exact=False, tolerance=1e-10)
        assert [rank.mechanisms for rank in ranks] == [{0: SENT}, {0: SENT}, {0: SENT, 1: KEPT}]


def test_bf16_autocast(rank_pool: RankPool) -> None:
    job = Job("gpt", plan("gpt", "zb_h1", recompute=False), None, None, precision="bf16-mixed")
    check(job, rank_pool.run(3, train, job), exact=False, tolerance=1e-2)
    job = Job("mlp", plan("mlp", "zb_h1", recompute=False), None, None, precision="bf16-mixed")
    check(job, rank_pool.run(3, train, job), exact=True, tolerance=1e-2)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", ["gpipe", "zb_h1"])
def test_blocks_that_pass_things_through_change_them_and_branch(
    rank_pool: RankPool, recompute: bool, schedule: str
) -> None:
    losses, grads, _ = odd_blocks(None)
    for backward in ([["d0"], ["d1"], ["d0"], ["d0"]], [["d1"], ["d0"], ["d1"], ["d1"]]):
        remote_plan = plan_of(
            [0, 1, 2, 3, 5],
            [["d0"], ["d0"], ["d0"], ["d1"]],
            backward=backward,
            recompute=recompute,
            schedule=schedule,
        )
        ranks = rank_pool.run(2, odd_blocks, remote_plan)
        assert {name for _, rank_grads, _ in ranks for name in rank_grads} == set(grads)
        for rank_losses, rank_grads, mechanisms in ranks:
            assert all(map(torch.equal, rank_losses, losses))
            assert all(torch.equal(rank_grads[name], grads[name]) for name in rank_grads)
            if not recompute and 3 in mechanisms and backward[3] != ["d1"]:
                assert mechanisms[3] == "forward recomputed: its backward depends on the values of its input"


@pytest.mark.parametrize("width", [8, 300])
def test_parameters_return_as_the_step_left_them(rank_pool: RankPool, width: int) -> None:
    """With few and with many parameters, and none where a block is frozen."""
    losses = train_with_frozen(None, width)
    remote_plan = plan_of([0, 1, 2, 3], [["d0"], ["d0"], ["d1"]], backward=[["d1"], ["d1"], ["d0"]])
    for rank_grads in rank_pool.run(2, train_with_frozen, remote_plan, width):
        assert all(map(torch.equal, rank_grads, losses))
