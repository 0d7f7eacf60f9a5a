"""The reference is plain training: the same bits as a loop that anybody would write."""

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.runtime.verify.reference import reference_step
from tests.support.runtime.models import KINDS

torch.set_num_threads(1)


def by_hand(model: nn.Module, loss: object, x: Tensor, y: Tensor, parts: list[int]) -> float:
    total = 0.0
    for rows, targets in zip(x.split(parts), y.split(parts), strict=True):  # type: ignore[no-untyped-call]
        found = loss(model(rows), targets) * (len(rows) / len(x))  # type: ignore[operator]
        found.backward()
        total += float(found.detach())
    return total


@pytest.mark.parametrize("kind", ["vgg", "resnet", "mlp"])
def test_same_bits_as_a_plain_loop(kind: str) -> None:
    x, y = KINDS[kind].batch(0, 13)
    one, other = KINDS[kind].model(), KINDS[kind].model()
    total = by_hand(one, KINDS[kind].loss, x, y, [4, 3, 3, 3])
    found = reference_step(other, find_blocks(other), 4, KINDS[kind].loss, x, y)
    assert float(found) == pytest.approx(total, rel=1e-6)
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)
    assert all(map(torch.equal, one.buffers(), other.buffers()))


def test_the_loss_is_the_mean_over_all_rows() -> None:
    kind = KINDS["mlp"]
    model = kind.model()
    x, y = kind.batch(0, 13)
    found = reference_step(model, find_blocks(model), 4, kind.loss, x, y)
    assert float(found) == pytest.approx(float(kind.loss(model(x), y).detach()), rel=1e-5)


def test_a_loss_must_be_one_number() -> None:
    model = KINDS["mlp"].model()
    x, y = KINDS["mlp"].batch(0, 4)
    with pytest.raises(InputError, match=r"the loss gives a tensor of shape \(4, 5\)"):
        reference_step(model, find_blocks(model), 1, lambda out, _: out, x, y)


def test_inputs_and_targets_must_have_the_same_rows() -> None:
    model = KINDS["mlp"].model()
    x, y = KINDS["mlp"].batch(0, 4)
    with pytest.raises(InputError, match="differ in their rows"):
        reference_step(model, find_blocks(model), 1, KINDS["mlp"].loss, x, y[:3])
    with pytest.raises(InputError, match="no rows"):
        reference_step(model, find_blocks(model), 1, KINDS["mlp"].loss, x[:0], y[:0])
    with pytest.raises(InputError, match="no tensor"):
        reference_step(model, find_blocks(model), 1, KINDS["mlp"].loss, 3, None)
