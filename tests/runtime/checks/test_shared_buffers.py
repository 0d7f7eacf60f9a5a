"""Buffers that layers of several stages share, on one rank."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.runtime.checks.consistency import _differ, _Digest, _digest, materialize_held, release_unused
from penstock.runtime.checks.shared_buffers import SharedBufferCheck
from penstock.runtime.layout.layout import StageView


class Table(nn.Module):
    """Reads a buffer that it may share."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x + self.table)
        return found


def stage(start: int, stop: int, *ranks: int, backward: tuple[int, ...] = ()) -> StageView:
    shares = (1 / len(ranks),) * len(ranks)
    return StageView(start, stop, shares, ranks, backward or ranks, recompute=False, needs_sync=False)


def tables() -> tuple[nn.Sequential, Table, Table]:
    """Blocks 0 and 2 share a buffer; block 1 has its own. Returns the model, block 0 and block 1."""
    first, second, third = (Table(torch.zeros(2)) for _ in range(3))
    third.table = first.table
    return nn.Sequential(first, second, third), first, second


def check_of(model: nn.Sequential, *cuts: int) -> SharedBufferCheck:
    stages = [stage(one, other, number) for number, (one, other) in enumerate(pairwise(cuts))]
    check = SharedBufferCheck(model, find_blocks(model), stages)
    check.begin()
    return check


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_shared_buffer_must_not_change(how: str) -> None:
    model, first, second = tables()
    check = check_of(model, 0, 1, 3)
    check.check()
    second.table.add_(1)  # of one stage only
    check.check()
    if how == "in place":
        first.table.add_(0)
    else:
        first.table = torch.zeros(2)
    with pytest.raises(InputError, match=r"buffer '0\.table' changes in training, but layers of several stages"):
        check.check()
    # The next iteration has a state of its own.
    check.begin()
    check.check()


def test_layers_of_one_stage_may_change_what_they_share() -> None:
    model, first, _ = tables()
    check = check_of(model, 0, 3)
    first.table.add_(1)
    check.check()


def test_a_rank_keeps_what_its_blocks_use() -> None:
    kept, other, again, last = *(Table(torch.ones(2)) for _ in range(3)), nn.Linear(2, 2)
    last.weight = kept.layer.weight
    again.layer.weight = other.layer.weight
    other.layer.bias.requires_grad_(False)
    model = nn.Sequential(kept, other, again, last)
    release_unused(model, find_blocks(nn.Sequential(kept)))
    assert {name for name, item in model.named_parameters() if not item.is_meta} == {"0.layer.weight", "0.layer.bias"}
    assert {name for name, item in model.named_buffers() if not item.is_meta} == {"0.table"}
    assert last.weight is kept.layer.weight
    # Parameters that were shared still are, and frozen ones stay frozen.
    assert again.layer.weight is other.layer.weight
    assert not other.layer.bias.requires_grad
    assert other.layer.weight.requires_grad


def test_a_rank_materializes_its_forwards_and_backwards() -> None:
    def made(rank: int) -> set[str]:
        model = nn.Sequential(*(nn.Linear(2, 2, device="meta") for _ in range(4)))
        stages = [stage(0, 1, 0), stage(1, 2, 1, backward=(2,)), stage(2, 4, 2)]
        blocks, error = materialize_held(
            find_blocks(model), model, stages, rank, seed=0, device=torch.device("cpu"), init=None
        )
        assert error is None
        assert [block.parameters for block in blocks] == [dict(block.parameters) for block in find_blocks(model)]
        return {name.partition(".")[0] for name, item in model.named_parameters() if not item.is_meta}

    assert [made(rank) for rank in range(4)] == [{"0"}, {"1"}, {"1", "2", "3"}, set()]


def test_digests_tell_tensors_apart() -> None:
    one = torch.tensor([1.0, 2.0, 3.0])
    assert not _differ(_digest(one), _digest(one.clone()))
    for other in (
        torch.tensor([1.0, 3.0, 2.0]),  # the same sum
        torch.tensor([1.0, 2.0, 4.0]),
        one.double(),
        one.reshape(1, 3),
        one.clone().requires_grad_(),
    ):
        assert _differ(_digest(one), _digest(other))
    assert _differ(_digest(one), None)
    # Values that a checkpoint will fill may be anything, and a tensor on the meta device has none.
    nan = torch.tensor([float("nan"), 1.0, 2.0])
    assert not _differ(_digest(nan), _digest(nan.clone()))
    assert not _differ(_digest(one), _digest(one.to("meta")))
    assert not _differ(_digest(one.to("meta")), _digest(one))
    assert _differ(_digest(one.to("meta")), _digest(one.double()))
    assert _digest(one.to("meta")) == _Digest(((3,), "torch.float32", False))
    assert _differ(_digest(torch.tensor([1 + 2j])), _digest(torch.tensor([2 + 1j])))
    assert not _differ(_digest(torch.tensor([1 + 2j]).conj()), _digest(torch.tensor([1 - 2j])))
    assert not _differ(_digest(torch.zeros(0)), _digest(torch.zeros(0)))


def test_values_that_change_without_a_new_version() -> None:
    """As the running statistics of `torch.nn.functional.batch_norm` do."""
    model, first, _ = tables()
    check = check_of(model, 0, 1, 3)
    version = first.table._version
    nn.functional.batch_norm(torch.randn(3, 2), first.table, torch.ones(2), training=True)
    assert first.table._version == version
    with pytest.raises(InputError, match=r"buffer '0\.table' changes in training"):
        check.check()
