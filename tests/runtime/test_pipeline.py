"""What users do: accumulate, schedule, change batch sizes, use bf16, start more ranks than needed."""

from itertools import pairwise

import pytest
import torch

import penstock
from penstock.plan.types import Plan
from tests.support.runtime import own_forward
from tests.support.runtime.comparison import check
from tests.support.runtime.models import profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train
from tests.support.runtime.user_models import (
    accumulate_and_schedule,
    held_bytes,
    plan_of,
    timelines,
    train_under_the_profiler,
)

torch.set_num_threads(1)

PLANS = {
    "cut": plan_of([0, 3, 7], [["d0"], ["d1"]], schedule="zb_h1"),
    "moved": plan_of([0, 2, 5, 7], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]]),
    "both ways": plan_of([0, 4, 7], [["d0"], ["d1"]], backward=[["d1"], ["d0"]], schedule="zb_h1"),
    "replicated": plan_of([0, 3, 7], [["d0", "d1"], ["d1"]]),
    "crossed": plan_of(
        [0, 3, 7], [["d0", "d1"], ["d0", "d1"]], backward=[["d1", "d0"], ["d0", "d1"]], schedule="zb_h1"
    ),
}


@pytest.mark.parametrize("name", list(PLANS))
def test_accumulation_schedulers_and_uneven_batches(rank_pool: RankPool, name: str) -> None:
    rows = [7, 12, 2, 7, 12, 3]
    losses, parameters = accumulate_and_schedule(None, "mlp", rows)
    exact = all(stage.num_replicas == 1 for stage in PLANS[name].stages)
    for found_losses, found in rank_pool.run(2, accumulate_and_schedule, PLANS[name], "mlp", rows):
        pairs = [*zip(found_losses, losses, strict=True), *((found[key], parameters[key]) for key in found)]
        for one, other in pairs:
            assert torch.equal(one, other) if exact else torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def job(kind: str, plan: Plan, **options: object) -> Job:
    return Job(kind, plan, None, None, **options)  # type: ignore[arg-type]


def test_bf16_autocast_gives_the_bits_of_one_process(rank_pool: RankPool) -> None:
    for plan in (PLANS["cut"], PLANS["moved"], PLANS["both ways"]):
        made = job("mlp", plan, precision="bf16-mixed")
        check(made, rank_pool.run(2, train, made), exact=True, tolerance=1e-2)


def test_replicas_equal_one_process_closely_in_double(rank_pool: RankPool) -> None:
    for kind, cuts in (("gpt", [0, 2, 5]), ("resnet", [0, 3, 9]), ("mlp", [0, 3, 7])):
        plan = plan_of(cuts, [["d0", "d1"], ["d2", "d0", "d1"]], schedule="zb_h1")
        made = job(kind, plan, double=True)
        check(made, rank_pool.run(3, train, made), exact=False, tolerance=1e-10)


def test_shared_parameters_that_are_trained_in_one_place_and_used_in_another(rank_pool: RankPool) -> None:
    groups = [["d0"], ["d1"], ["d0"]]
    for backward in ([["d0"], ["d1"], ["d1"]], [["d1"], ["d1"], ["d0"]], [["d1"], ["d0"], ["d1"]]):
        made = job("gpt", plan_of([0, 2, 4, 5], groups, backward=backward, schedule="zb_h1"))
        check(made, rank_pool.run(2, train, made), exact=False)


@pytest.mark.parametrize("backward", [[["d0"], ["d1"], ["d0"]], [["d1"], ["d0"], ["d1"]]])
def test_stages_that_run_again_may_begin_in_place(rank_pool: RankPool, backward: list[list[str]]) -> None:
    plan = plan_of([0, 2, 5, 11], [["d0"], ["d1"], ["d0"]], backward=backward, recompute=True, schedule="zb_h1")
    made = job("vgg", plan)
    check(made, rank_pool.run(2, train, made), exact=True)


def test_a_model_with_a_forward_of_its_own(rank_pool: RankPool) -> None:
    losses, parameters = own_forward.train_single_process(3)
    for backward in ([["d0"], ["d1"]], [["d1"], ["d1"]]):
        plan = plan_of([0, 3, 6], [["d0"], ["d1"]], backward=backward, schedule="zb_h1")
        ranks = rank_pool.run(2, own_forward.train, plan)
        assert {name for _, found in ranks for name in found} == set(parameters)
        for found_losses, found in ranks:
            assert all(map(torch.equal, found_losses, losses))
            # The embedding is shared between stages: its gradients are added in another order.
            assert all(torch.allclose(found[name], parameters[name], rtol=1e-6, atol=1e-7) for name in found)


def test_ranks_that_the_plan_does_not_use_get_the_loss(rank_pool: RankPool) -> None:
    made = job("mlp", PLANS["cut"])
    ranks = rank_pool.run(3, train, made)
    assert ranks[2].parameters == {}
    check(made, ranks, exact=True)


def test_a_plan_with_its_profile_and_cluster_and_alone_gives_the_same(rank_pool: RankPool) -> None:
    profile = profile_of("resnet")
    cluster = penstock.load_cluster("2 x k @ 1 GB/s")
    plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="zb_h1")
    for made in (Job("resnet", plan, profile, cluster), Job("resnet", plan, None, None)):
        check(made, rank_pool.run(2, train, made), exact=True)


def test_a_rank_keeps_only_its_part(rank_pool: RankPool) -> None:
    (first, total), (second, _) = rank_pool.run(2, held_bytes, PLANS["cut"], "mlp")
    assert first + second == total
    assert min(first, second) > 0
    for held, _ in rank_pool.run(2, held_bytes, PLANS["both ways"], "mlp"):
        assert held == total


@pytest.mark.parametrize("name", ["cut", "moved", "crossed"])
def test_the_timeline_says_what_happened_when(rank_pool: RankPool, name: str) -> None:
    ranks = rank_pool.run(2, timelines, PLANS[name], "mlp")
    names, starts, ends, taken_s = ranks[0]
    assert ranks[1] is None, "timelines go to rank 0 only"
    assert min(starts) == 0
    assert all(start <= end for start, end in zip(starts, ends, strict=True))
    assert 0 < max(ends) <= taken_s + 0.05
    at = {action: place for place, action in enumerate(names)}
    for device in ("d0", "d1"):
        busy = [
            at[key] for key in names if key.endswith(device) and any(kind in key for kind in ("F", "R", "I", "W", "B"))
        ]
        busy = [place for place in busy if "_" not in names[place]]
        assert all(ends[one] <= starts[other] for one, other in pairwise(busy))
        assert all(ends[place] > starts[place] for place in busy)
    for action, place in at.items():
        if "RECV_F" in action:
            used = action.split("RECV_F")[0] + "F" + action.split("RECV_F")[1].split("@")[0] + " on " + action[-2:]
            assert ends[place] <= starts[at[used]]


def test_torch_profiler_does_no_harm(rank_pool: RankPool) -> None:
    plan = plan_of([0, 3, 7], [["d0"], ["d1"]], num_microbatches=8)
    assert all(count > 0 for count in rank_pool.run(2, train_under_the_profiler, plan))
