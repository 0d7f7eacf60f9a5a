"""The loop, its batches, and training in one process with the calls of a pipeline."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.runtime.batch_source import repeat_sample, with_own_rng
from penstock.runtime.training_loop import Recipe, train_steps
from penstock.runtime.verify.single_process import SingleProcess
from penstock.runtime.verify.state_diff import compare_states


def _loss(output: Tensor, targets: Tensor) -> Tensor:
    return (output - targets).square().mean()


def _model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _batches(num: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(6, 3, generator=generator), torch.randn(6, 2, generator=generator)) for _ in range(num)]


def test_steps_are_those_of_plain_torch() -> None:
    model, plain = _model(), _model()
    trainer = SingleProcess(model, find_blocks(model), 2, _loss)
    optimizer = trainer.optimizer(torch.optim.SGD, lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    recipe = Recipe(num_steps=3, num_accumulated=2, max_norm=0.5)
    done = list(train_steps(trainer, optimizer, iter(_batches(6)), recipe, scheduler=scheduler))
    assert [item.step for item in done] == [0, 1, 2]
    assert [item.num_rows for item in done] == [12] * 3
    other = torch.optim.SGD(plain.parameters(), lr=0.1)
    batches = _batches(6)
    for step in range(3):
        other.param_groups[0]["lr"] = 0.1 * 0.5**step
        other.zero_grad()
        x, y = (torch.cat(parts) for parts in zip(*batches[2 * step : 2 * step + 2], strict=True))
        expected = _loss(plain(x), y)
        torch.autograd.backward(expected)
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        other.step()
        assert done[step].loss == pytest.approx(expected.item(), rel=1e-6)
    for found, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_it_ends_with_the_batches() -> None:
    model = _model()
    trainer = SingleProcess(model, find_blocks(model), 2, _loss)
    optimizer = trainer.optimizer(torch.optim.SGD, lr=0.1)
    assert len(list(train_steps(trainer, optimizer, iter(_batches(2)), Recipe(num_steps=5)))) == 2


def test_a_sample_is_repeated_to_the_rows_of_a_batch() -> None:
    x, y = next(repeat_sample((torch.arange(3), {"y": torch.arange(6).view(3, 2), "k": 4}), 5))
    assert x.tolist() == [0, 1, 2, 0, 1]
    assert y["y"][:, 0].tolist() == [0, 2, 4, 0, 2]
    assert y["k"] == 4


def test_batches_do_not_depend_on_what_else_is_drawn() -> None:
    def draw() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(3):
            yield torch.randn(2), torch.randn(2)

    calm = [item[0] for item in with_own_rng(draw(), 7)]
    busy = []
    for item, _ in with_own_rng(draw(), 7):
        busy.append(item)
        torch.randn(100)
    assert torch.equal(torch.stack(calm), torch.stack(busy))
    assert not torch.equal(calm[0], calm[1])
    with pytest.raises(InputError, match="make_batches yielded a Tensor"):
        next(with_own_rng([torch.ones(2)], 0))


def test_states_are_compared() -> None:
    whole = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0, 12.0])}
    same = compare_states(whole, [{"a": whole["a"].clone()}, {"b": whole["b"].clone()}])
    assert (same.num_tensors, same.num_equal, same.worst, same.together) == (2, 2, 0.0, 0.0)
    assert same.within(0.0)
    off = compare_states(whole, [{"a": torch.tensor([3.0, 4.5]), "b": whole["b"]}])
    assert (off.num_equal, off.worst_name) == (1, "a")
    assert off.worst == pytest.approx(0.1)
    assert off.together == pytest.approx(0.5 / 13)
    assert not off.within(1e-6)
    assert compare_states(whole, [{"a": whole["a"], "b": whole["b"]}, {"a": whole["a"] + 1}]).torn == ("a",)
    assert compare_states(whole, [{"a": whole["a"]}]).missing == ("b",)
    assert not compare_states(whole, [{"a": whole["a"] * float("nan"), "b": whole["b"]}]).within(1e-6)
