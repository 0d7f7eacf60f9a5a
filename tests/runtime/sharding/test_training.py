"""Sharded optimizers give the numbers of unsharded ones to the bit, under every feature that touches the step."""

from pathlib import Path

import pytest
import torch

from penstock.runtime.state.checkpoints.torch_files import StoredCheckpoint
from tests.support.runtime.rank_pool import RankError, RankPool
from tests.support.runtime.sharded_runs import Run, Trained, make_optimizer, sharded, train_all
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

MLP = plan_of([0, 4, 7], [["d0", "d1", "d2"], ["d2", "d0"]], schedule="zb_h1")
TIED = plan_of([0, 2, 5], [["d0", "d1"], ["d2", "d0"]])


def merged(ranks: list[Trained]) -> dict[str, torch.Tensor]:
    result: dict[str, torch.Tensor] = {}
    for rank in ranks:
        for name, item in rank.parameters.items():
            assert torch.equal(item, result.setdefault(name, item)), name
    return result


def check_equal(ranks: list[Trained], others: list[Trained]) -> None:
    """To the bit; the runs may begin at different steps."""
    one, other = merged(ranks), merged(others)
    assert one.keys() == other.keys()
    for name, item in one.items():
        assert item.dtype == other[name].dtype
        assert torch.equal(item, other[name]), name
    for rank, twin in zip(ranks, others, strict=True):
        for values, twins in ((rank.losses, twin.losses), (rank.norms, twin.norms)):
            num = min(len(values), len(twins))
            assert num > 0
            assert all(map(torch.equal, values[-num:], twins[-num:]))


def test_the_numbers_of_unsharded_optimizers(rank_pool: RankPool) -> None:
    plain = [
        Run("mlp", MLP),
        Run("mlp", MLP, optimizer="SGD", precision="bf16"),
        Run("mlp", MLP, precision="fp16"),
        Run("gpt", TIED, precision="bf16-mixed"),
        Run("vgg", plan_of([0, 11], [["d0", "d1", "d2"]])),
    ]
    runs = [*plain, *(run._replace(plan=sharded(run.plan)) for run in plain)]
    ranks = rank_pool.run(3, train_all, runs)
    for number in range(len(plain)):
        whole, parts = ([rank[index] for rank in ranks] for index in (number, number + len(plain)))
        check_equal(parts, whole)
        assert not any(rank.slices for rank in whole)
        assert sum(rank.num_states for rank in parts) < sum(rank.num_states for rank in whole)
    # One stage on three replicas: each has a third of everything, except for the rounding of the cuts.
    parts = [rank[-1] for rank in ranks]
    num = ranks[0][len(plain) - 1].num_trained
    assert sum(rank.num_trained for rank in parts) == num
    assert max(rank.num_trained for rank in parts) - num / 3 <= 64
    assert any(rank.slices for rank in parts)
    assert all(rank.num_states == 2 * rank.num_trained for rank in parts)


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_checkpoints_load_under_plans_that_shard_and_that_do_not(
    rank_pool: RankPool, tmp_path: Path, precision: str | None
) -> None:
    whole, parts = Run("mlp", MLP, precision=precision), Run("mlp", sharded(MLP), precision=precision)
    other = plan_of([0, 2, 7], [["d1", "d0"], ["d2"]])
    saved = rank_pool.run(
        3, train_all, [whole._replace(save=tmp_path / "whole"), parts._replace(save=tmp_path / "parts")]
    )
    loaded = rank_pool.run(
        3,
        train_all,
        [
            whole._replace(load=tmp_path / "parts"),
            parts._replace(load=tmp_path / "whole"),
            parts._replace(load=tmp_path / "parts", plan=sharded(other)),
            whole._replace(load=tmp_path / "whole", plan=other),
        ],
    )
    for number in range(2):
        check_equal([rank[number] for rank in loaded], [rank[0] for rank in saved])
    check_equal([rank[2] for rank in loaded], [rank[3] for rank in loaded])
    # Plain torch finds whole tensors under the names of the model.
    stored = {name: StoredCheckpoint(next((tmp_path / name).glob("step-*"))) for name in ("whole", "parts")}
    assert stored["whole"].shapes("model") == stored["parts"].shapes("model")
    states = {name: item.read(lambda key: key[:2] == ("optim", "state")) for name, item in stored.items()}
    for name, state in states["whole"]["optim"]["state"].items():
        for key, value in state.items():
            assert torch.equal(value, states["parts"]["optim"]["state"][name][key]), (name, key)


def test_other_optimizers_are_refused_by_name(rank_pool: RankPool) -> None:
    with pytest.raises(RankError, match="Adafactor is not known to step every element"):
        rank_pool.run(3, make_optimizer, sharded(MLP), "Adafactor")
