"""Evaluation between steps, clipping over ranks: the numbers of one process."""

import math

import pytest
import torch

from penstock.plan.types import Plan
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import clip, evaluate_between_steps, plan_of

PLANS: dict[str, Plan] = {
    "straight": plan_of([0, 2, 5], [["d0"], ["d1"]]),
    "I and W apart": plan_of([0, 2, 5], [["d0"], ["d1"]], schedule="zb_h1"),
    "backward elsewhere": plan_of([0, 2, 3, 5], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]]),
    "replicas": plan_of([0, 2, 5], [["d0", "d1"], ["d2"]]),
    "one device": plan_of([0, 5], [["d0"]]),
}


@pytest.mark.parametrize("name", list(PLANS))
def test_evaluation_does_not_disturb_training(rank_pool: RankPool, name: str) -> None:
    plan = PLANS[name]
    ranks = rank_pool.run(len(plan.devices), evaluate_between_steps, plan, "gpt")
    expected = evaluate_between_steps(None, "gpt")
    for losses in ranks:
        for found, wanted in zip(losses, expected, strict=True):
            assert (found - wanted).abs() <= 1e-6 * wanted.abs()


def test_evaluation_uses_running_statistics(rank_pool: RankPool) -> None:
    plan = plan_of([0, 4, 11], [["d0"], ["d1"]])
    first, second = rank_pool.run(2, evaluate_between_steps, plan, "vgg")
    expected = evaluate_between_steps(None, "vgg")
    for losses in (first, second):
        assert all((a - b).abs() <= 1e-6 * b.abs() for a, b in zip(losses, expected, strict=True))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
def test_clipping_is_that_of_one_process_to_the_bit(rank_pool: RankPool, norm_type: float) -> None:
    wanted, parameters = clip(None, "mlp", norm_type)
    plan = plan_of([0, 3, 7], [["d0"], ["d1"]])
    for norms, found in rank_pool.run(2, clip, plan, "mlp", norm_type):
        assert all(torch.equal(a, b) for a, b in zip(norms, wanted, strict=True))
        assert all(torch.equal(item, parameters[name]) for name, item in found.items())


@pytest.mark.parametrize("name", ["replicas", "backward elsewhere", "one device"])
def test_shared_and_replicated_parameters_count_once(rank_pool: RankPool, name: str) -> None:
    wanted, parameters = clip(None, "gpt", 2.0)
    plan = PLANS[name]
    for norms, found in rank_pool.run(len(plan.devices), clip, plan, "gpt", 2.0):
        assert all((a - b).abs() <= 1e-6 * b for a, b in zip(norms, wanted, strict=True))
        assert all((item - parameters[name]).norm() <= 1e-6 * parameters[name].norm() for name, item in found.items())
