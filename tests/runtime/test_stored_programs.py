"""Training with slices of a stored program: the same bits, and no rank lowers the program."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.plan.types import Plan
from penstock.program.slices import save_slices
from tests.support.runtime.assembly import build
from tests.support.runtime.models import KINDS
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import make, plan_of

PLANS = {
    "cut": plan_of([0, 3, 7], [["d0"], ["d1"]], schedule="zb_h1"),
    "both ways": plan_of([0, 4, 7], [["d0"], ["d1"]], backward=[["d1"], ["d0"]], schedule="zb_h1"),
    "replicated": plan_of([0, 3, 7], [["d0", "d1"], ["d1"]]),
}


def train(plan: Plan, slices: str | None) -> tuple[list[Tensor], dict[str, Tensor], bool]:
    """Losses, parameters, and whether this rank has lowered the whole program."""
    pipe = make("mlp", plan, slices=slices)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        losses.append(pipe.step(*KINDS["mlp"].batch(step, 7)))
        optimizer.step()
    losses.append(pipe.evaluate(*KINDS["mlp"].batch(9, 5)))
    found = {name: item.detach().clone() for name, item in pipe.named_parameters().items()}
    pipe.close()
    return losses, found, "proof" in vars(pipe._parts.compiled)


def stored(plan: Plan, tmp_path: Path) -> Path:
    save_slices(build("mlp", plan, 0)[1].proof.program, tmp_path / "slices")
    return tmp_path / "slices"


@pytest.mark.parametrize("name", list(PLANS))
def test_slices_give_the_bits_of_the_whole_program(rank_pool: RankPool, name: str, tmp_path: Path) -> None:
    path = str(stored(PLANS[name], tmp_path))
    whole, sliced = (rank_pool.run(2, train, PLANS[name], slices) for slices in (None, path))
    for (losses, parameters, is_lowered), (other_losses, other, is_other_lowered) in zip(whole, sliced, strict=True):
        assert all(torch.equal(one, two) for one, two in zip(losses, other_losses, strict=True))
        assert parameters.keys() == other.keys()
        assert all(torch.equal(item, other[key]) for key, item in parameters.items())
        assert (is_lowered, is_other_lowered) == (True, False)


def test_a_damaged_slice_is_refused(rank_pool: RankPool, tmp_path: Path) -> None:
    path = stored(PLANS["cut"], tmp_path)
    contents = path.read_bytes()
    path.write_bytes(contents[:-3] + bytes(3))
    is_done, error = rank_pool.outcome_of(1, 2, train, PLANS["cut"], str(path))
    assert not is_done
    assert "the slice of device 'd1' is damaged" in str(error)
