"""Forward on one rank, backward on another, by shipping or by running again: the numbers of one process."""

from typing import Any

import pytest
import torch

from penstock.plan.types import Plan
from penstock.runtime.remote_backward.transfer import AS_PLANNED, KEPT, SHIPPED
from tests.support.runtime.comparison import check
from tests.support.runtime.odd_blocks import odd_blocks
from tests.support.runtime.training import Job, train
from tests.support.runtime.user_models import plan_of, train_with_frozen
from tests.support.runtime.world import World

torch.set_num_threads(1)

CUTS = {"gpt": [0, 1, 3, 5], "vgg": [0, 2, 5, 11], "resnet": [0, 2, 6, 9], "mlp": [0, 2, 5, 7]}


def plan(kind: str, schedule: str, *, recompute: bool) -> Plan:
    """The first and the last stage change places for the backward; the middle one moves on."""
    groups: dict[str, Any] = {"devices": [["d0"], ["d1"], ["d2"]], "backward": [["d2"], ["d0"], ["d1"]]}
    return plan_of(CUTS[kind], schedule=schedule, recompute=recompute, **groups)


@pytest.mark.parametrize("schedule", ["1f1b", "zb_h1"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kind", list(CUTS))
def test_all_stages_moved(world: World, kind: str, recompute: bool, schedule: str) -> None:
    made = Job(kind, plan(kind, schedule, recompute=recompute), None, None, num_rows=(7, 12, 7))
    ranks = world.run(3, train, made)
    # The embedding of the GPT is shared: its gradients are added in another order.
    check(made, ranks, exact=kind != "gpt")
    assert all(set(rank.mechanisms.values()) == {AS_PLANNED if recompute else SHIPPED} for rank in ranks)
    assert [sorted(rank.mechanisms) for rank in ranks] == [[0, 1], [1, 2], [0, 2]]


def test_replicas_that_are_moved(world: World) -> None:
    groups: dict[str, Any] = {"devices": [["d0", "d1"], ["d2"]], "backward": [["d1", "d2"], ["d2"]]}
    for kind, cuts in (("gpt", [0, 2, 5]), ("resnet", [0, 3, 9])):
        made = Job(kind, plan_of(cuts, schedule="zb_h1", **groups), None, None, double=True)
        ranks = world.run(3, train, made)
        check(made, ranks, exact=False, tolerance=1e-10)
        assert [rank.mechanisms for rank in ranks] == [{0: SHIPPED}, {0: SHIPPED}, {0: SHIPPED, 1: KEPT}]


def test_bf16_autocast(world: World) -> None:
    made = Job("gpt", plan("gpt", "zb_h1", recompute=False), None, None, bf16=True)
    check(made, world.run(3, train, made), exact=False, tolerance=1e-2)
    made = Job("mlp", plan("mlp", "zb_h1", recompute=False), None, None, bf16=True)
    check(made, world.run(3, train, made), exact=True, tolerance=1e-2)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", ["gpipe", "zb_h1"])
def test_blocks_that_pass_things_through_change_them_and_branch(world: World, recompute: bool, schedule: str) -> None:
    losses, grads, _ = odd_blocks(None)
    for backward in ([["d0"], ["d1"], ["d0"], ["d0"]], [["d1"], ["d0"], ["d1"], ["d1"]]):
        made = plan_of(
            [0, 1, 2, 3, 5],
            [["d0"], ["d0"], ["d0"], ["d1"]],
            backward=backward,
            recompute=recompute,
            schedule=schedule,
        )
        ranks = world.run(2, odd_blocks, made)
        assert {name for _, found, _ in ranks for name in found} == set(grads)
        for found_losses, found, mechanisms in ranks:
            assert all(map(torch.equal, found_losses, losses))
            assert all(torch.equal(found[name], grads[name]) for name in found)
            if not recompute and 3 in mechanisms and backward[3] != ["d1"]:
                assert mechanisms[3] == "forward run again: its way back depends on what is in its input"


@pytest.mark.parametrize("width", [8, 300])
def test_parameters_go_back_as_the_step_left_them(world: World, width: int) -> None:
    """Few of them and many, and none where a block is not trained."""
    losses = train_with_frozen(None, width)
    made = plan_of([0, 1, 2, 3], [["d0"], ["d0"], ["d1"]], backward=[["d1"], ["d1"], ["d0"]])
    for found in world.run(2, train_with_frozen, made, width):
        assert all(map(torch.equal, found, losses))
