"""Training in every precision gives the numbers of a single process under the same recipe."""

from pathlib import Path

import pytest
import torch

from penstock.profile import PRECISIONS
from tests.support.runtime.precision_runs import (
    OPTIMIZERS,
    TOO_LARGE,
    Run,
    Trained,
    change_layer,
    change_masters,
    train,
    train_all,
    train_with_grad_scaler,
)
from tests.support.runtime.rank_pool import RankError, RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

EXACT = {
    "cut": plan_of([0, 3, 7], [["d0"], ["d1"]], schedule="zb_h1"),
    "fused": plan_of([0, 4, 7], [["d0"], ["d1"]]),
    "remote": plan_of([0, 4, 7], [["d0"], ["d1"]], backward=[["d1"], ["d0"]], schedule="zb_h1"),
    "recomputed": plan_of([0, 2, 5, 7], [["d0"], ["d1"], ["d0"]], recompute=True),
}
REPLICATED = plan_of([0, 3, 7], [["d0", "d1"], ["d1"]], schedule="zb_h1")
CLOSE = {"fp32": 1e-5, "tf32": 1e-5, "bf16": 3e-2, "fp16": 4e-3, "bf16-mixed": 3e-2, "fp16-mixed": 4e-3}


def merged(ranks: list[Trained]) -> dict[str, torch.Tensor]:
    """The parameters of all ranks, which agree on those that several hold."""
    result: dict[str, torch.Tensor] = {}
    for rank in ranks:
        for name, item in rank.parameters.items():
            assert torch.equal(item, result.setdefault(name, item)), name
    return result


def check_equal(ranks: list[Trained], single: Trained) -> None:
    """To the bit."""
    parameters = merged(ranks)
    assert parameters.keys() == single.parameters.keys()
    for rank in ranks:
        assert all(map(torch.equal, rank.losses, single.losses))
        assert (rank.scales, rank.skipped, rank.rates) == (single.scales, single.skipped, single.rates)
    for name, item in parameters.items():
        assert item.dtype == single.parameters[name].dtype
        assert torch.equal(item, single.parameters[name]), name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_plans_that_keep_every_order_give_the_same_bits(rank_pool: RankPool, precision: str) -> None:
    runs = [Run("mlp", plan, precision, rows=(7, 12, 2)) for plan in EXACT.values()]
    single = train(Run("mlp", None, precision, rows=(7, 12, 2)))
    for results in zip(*rank_pool.run(2, train_all, runs), strict=True):
        check_equal(list(results), single)
        expected = getattr(torch, PRECISIONS[precision].parameter_type)
        assert all(item.layer_types <= {expected} for item in results)
        assert {item.dtype for rank in results for item in rank.parameters.values()} == {torch.float32}
        assert all(loss.dtype == torch.float32 for loss in results[0].losses)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "bf16-mixed"])
def test_convolutions_batch_norm_and_dropout(rank_pool: RankPool, precision: str) -> None:
    runs = [
        Run("vgg", plan_of([0, 4, 11], [["d0"], ["d1"]], schedule="zb_h1"), precision),
        Run("resnet", plan_of([0, 3, 9], [["d0"], ["d1"]], schedule="zb_h1"), precision),
    ]
    ranks = rank_pool.run(2, train_all, runs)
    for number, run in enumerate(runs):
        check_equal([rank[number] for rank in ranks], train(Run(run.kind, None, precision)))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_replicas_and_tied_parameters_are_close(rank_pool: RankPool, precision: str) -> None:
    # Plain sums of gradients: Adam would turn each last bit into a step of full size.
    runs = [
        Run("mlp", REPLICATED, precision, rows=(12,), stop=1),
        Run("gpt", plan_of([0, 2, 5], [["d0"], ["d1"]], schedule="zb_h1"), precision, stop=1),
    ]
    ranks = rank_pool.run(2, train_all, runs)
    for number, run in enumerate(runs):
        single = train(Run(run.kind, None, precision, rows=run.rows, stop=1))
        results = [rank[number] for rank in ranks]
        parameters = merged(results)
        for loss in (rank.losses[0] for rank in results):
            assert torch.allclose(loss, single.losses[0], rtol=CLOSE[precision])
        moved = [parameters[name] - item for name, item in single.parameters.items()]
        whole = torch.cat([item.flatten() for item in single.parameters.values()]).norm()
        assert torch.cat([item.flatten() for item in moved]).norm() <= CLOSE[precision] * whole


@pytest.mark.parametrize("precision", ["bf16", "fp16-mixed"])
def test_optimizers_clipping_accumulation_and_sums(rank_pool: RankPool, precision: str) -> None:
    runs = [
        *(Run("mlp", EXACT["cut"], precision, optimizer=name) for name in OPTIMIZERS),
        Run("mlp", EXACT["remote"], precision, max_norm=0.05),
        Run("mlp", EXACT["cut"], precision, accumulated=2, rows=(7, 4)),
    ]
    ranks = rank_pool.run(2, train_all, runs)
    for number, run in enumerate(runs):
        single = train(
            Run(run.kind, None, precision, rows=run.rows, optimizer=run.optimizer, max_norm=run.max_norm,
                accumulated=run.accumulated)
        )  # fmt: skip
        check_equal([rank[number] for rank in ranks], single)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_loss_that_is_a_sum_and_a_count(rank_pool: RankPool, precision: str) -> None:
    run = Run("mlp", EXACT["cut"], precision, own_sum=True, accumulated=2, stop=1)
    single = train(Run("mlp", None, precision, own_sum=True, accumulated=2, stop=1))
    for rank in rank_pool.run(2, train, run):
        for name, item in rank.parameters.items():
            assert (item - single.parameters[name]).norm() <= 1e-3 * single.parameters[name].norm()
        assert all(torch.allclose(*pair, rtol=1e-6) for pair in zip(rank.losses, single.losses, strict=True))


@pytest.mark.parametrize("precision", ["fp16", "fp16-mixed"])
def test_steps_that_overflow_are_skipped_on_all_ranks(rank_pool: RankPool, precision: str) -> None:
    run = Run("mlp", EXACT["cut"], precision, loss_scale=TOO_LARGE, stop=30, accumulated=2)
    single = train(Run("mlp", None, precision, loss_scale=TOO_LARGE, stop=30, accumulated=2))
    ranks = rank_pool.run(2, train, run)
    check_equal(ranks, single)
    assert single.skipped[0]
    assert not single.skipped[-1]
    assert single.scales[-1] == TOO_LARGE / 2 ** sum(single.skipped)


def test_the_loss_scale_is_that_of_torch(rank_pool: RankPool) -> None:
    whole = plan_of([0, 3, 7], [["d0"], ["d1"]], num_microbatches=1)
    run = Run("mlp", whole, "fp16-mixed", loss_scale=TOO_LARGE, stop=30)
    losses, parameters, scales = train_with_grad_scaler(run)
    ranks = rank_pool.run(2, train, run)
    for rank in ranks:
        assert rank.scales == scales
        assert all(map(torch.equal, rank.losses, losses))
    assert all(torch.equal(item, parameters[name]) for name, item in merged(ranks).items())


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp16-mixed"])
def test_a_checkpoint_continues_under_another_plan(rank_pool: RankPool, precision: str, tmp_path: Path) -> None:
    scale = TOO_LARGE if precision.startswith("fp16") else None
    single = train(Run("mlp", None, precision, stop=30, loss_scale=scale))
    begun = rank_pool.run(2, train, Run("mlp", EXACT["cut"], precision, stop=24, loss_scale=scale, save=str(tmp_path)))
    ranks = rank_pool.run(2, train, Run("mlp", EXACT["remote"], precision, stop=30, load=str(tmp_path)))
    for rank in ranks:
        assert all(map(torch.equal, [*begun[0].losses, *rank.losses], single.losses))
        assert [*begun[0].scales, *rank.scales] == single.scales
    assert all(torch.equal(item, single.parameters[name]) for name, item in merged(ranks).items())
    # Rounded weights would have lost what the optimizer has added.
    assert any(not torch.equal(item, item.bfloat16().float()) for item in merged(begun).values())


def test_changes_of_master_weights_reach_the_layers(rank_pool: RankPool) -> None:
    for before, after in rank_pool.run(2, change_masters, EXACT["cut"]):
        assert before != after


def test_changes_of_layers_alone_are_refused(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match="parameters of layers have changed, but not their master weights"):
        rank_pool.run(2, change_layer, EXACT["cut"])
