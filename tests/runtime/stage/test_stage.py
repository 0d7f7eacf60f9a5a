"""The actions of a stage on one device."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.errors import RunError
from penstock.model.blocks import find_blocks
from penstock.runtime.rng import forbid_untracked_draws
from penstock.runtime.stage.stage import TorchStage
from penstock.runtime.tensors.packing import PackedPayload, pack
from penstock.runtime.tensors.rows import Rows

ROWS = Rows(0, 4)
CPU = torch.device("cpu")


def stage_of(*layers: nn.Module) -> TorchStage:
    model = nn.Sequential(*layers)
    return TorchStage(find_blocks(model), 0, model, seed=0, is_split=False, device=CPU)


def given(x: Tensor) -> PackedPayload:
    return pack(x.detach().requires_grad_())[0]


def test_inputs_may_be_changed_in_place() -> None:
    x = torch.randn(4, 3)
    runner = stage_of(nn.ReLU(inplace=True))
    out, graph = runner.run(given(x.clone()), 0, ROWS, None, keep=True, defer=False)
    (grad,) = runner.backward(graph, [torch.ones(4, 3)])
    assert torch.equal(out.tensors[0], x.relu())
    assert grad is not None
    assert torch.equal(grad, (x > 0).float())


def test_inputs_that_are_outputs_get_their_gradients() -> None:
    class Pass(nn.Module):
        def forward(self, payload: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            return payload[0] * 2, payload[1], payload[0]

    x, y = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    runner = stage_of(Pass())
    out, graph = runner.run(pack((x, y))[0], 0, ROWS, None, keep=True, defer=False)
    assert out.needs_grad == (True, True, True)
    found = runner.backward(graph, [torch.ones(4, 3), torch.full((4, 3), 5.0), None])
    assert [None if grad is None else float(grad.mean()) for grad in found] == [2.0, 5.0]


def test_integers_get_no_gradient() -> None:
    class Mix(nn.Module):
        def forward(self, payload: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return payload[0] * payload[1], payload[1] + 1

    runner = stage_of(Mix())
    packed, _ = pack((torch.randn(4, requires_grad=True), torch.arange(4)))
    out, graph = runner.run(packed, 0, ROWS, None, keep=True, defer=False)
    assert out.needs_grad == (True, False)
    (grad,) = runner.backward(graph, [torch.ones(4)])
    assert grad is not None
    assert grad.tolist() == [0, 1, 2, 3]


def test_recompute_preserves_buffers() -> None:
    norm = nn.BatchNorm1d(3)
    runner = stage_of(norm, nn.Linear(3, 2))
    x = torch.randn(4, 3)
    out, _ = runner.run(given(x), 0, ROWS, None, keep=False, defer=False)
    assert norm.running_mean is not None
    mean, identity = norm.running_mean.clone(), id(norm.running_mean)
    graph = runner.recompute(given(x), 0, ROWS, None, defer=True)
    assert torch.equal(norm.running_mean, mean)
    assert id(norm.running_mean) == identity
    assert int(norm.num_batches_tracked or 0) == 1
    assert runner.backward(graph, [torch.ones_like(out.tensors[0])])[0] is not None


def test_weight_gradients_are_deferred() -> None:
    layer = nn.Linear(3, 2)
    runner = stage_of(layer)
    _, graph = runner.run(given(torch.randn(4, 3)), 0, ROWS, None, keep=True, defer=True)
    (grad,) = runner.backward(graph, [torch.ones(4, 2)])
    assert grad is not None
    assert layer.weight.grad is None
    assert graph.queue is not None
    graph.queue.run()
    assert layer.weight.grad is not None


def test_a_forward_that_will_be_recomputed_saves_nothing() -> None:
    class Look(nn.Module):
        """Reads the saved tensor of the block before."""

        def forward(self, x: Tensor) -> Tensor:
            assert x.grad_fn is not None
            saved: Tensor = x.grad_fn._saved_result  # type: ignore[attr-defined]
            return x + saved

    runner = stage_of(nn.Tanh(), Look())
    runner.run(given(torch.randn(4, 3)), 0, ROWS, None, keep=True, defer=False)
    with pytest.raises(AssertionError, match="without keeping its graph"):
        runner.run(given(torch.randn(4, 3)), 0, ROWS, None, keep=False, defer=False)
    out, _ = stage_of(nn.Tanh()).run(given(torch.randn(4, 3)), 0, ROWS, None, keep=False, defer=False)
    assert out.needs_grad == (True,)


class Saving(nn.Module):
    """Recomputes itself in the backward."""

    def __init__(self, p: float, *, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(p), nn.Linear(6, 6))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return found


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("defer", [False, True])
def test_blocks_that_recompute_themselves(reentrant: bool, defer: bool) -> None:
    x = torch.randn(4, 6)
    model = Saving(0.0, reentrant=reentrant)
    runner = stage_of(model)
    _, graph = runner.run(given(x), 0, ROWS, None, keep=True, defer=defer)
    (grad,) = runner.backward(graph, [torch.ones(4, 6)])
    runner.backward_weight(graph)
    leaf = x.clone().requires_grad_()
    plain = Saving(0.0, reentrant=reentrant)
    plain.inner(leaf).backward(torch.ones(4, 6))
    assert leaf.grad is not None
    assert grad is not None
    assert torch.equal(leaf.grad, grad)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("defer", [False, True])
def test_nothing_leaks(defer: bool) -> None:
    runner = stage_of(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    _, graph = runner.run(given(torch.randn(4, 3)), 0, ROWS, None, keep=True, defer=defer)
    (grad,) = runner.backward(graph, [torch.ones(4, 3)])
    runner.backward_weight(graph)
    assert grad is not None
    left: list[weakref.ref[object]] = [weakref.ref(graph), weakref.ref(grad)]
    gc.disable()  # a reference cycle counts as a leak
    try:
        del graph, grad
        assert [item() for item in left] == [None, None]
    finally:
        gc.enable()


def outputs(runner: TorchStage, x: Tensor, times: int, *, step: int = 3) -> list[Tensor]:
    runner.begin()
    return [runner.run(given(x), step, ROWS, None, keep=True, defer=False)[0].tensors[0] for _ in range(times)]


def test_random_numbers_are_the_same_in_the_first_run_and_in_later_ones() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    x = torch.randn(4, 3)
    for layer in (nn.Dropout(0.5), Noise()):
        first, *others = outputs(stage_of(nn.Linear(3, 3), layer), x, 3)
        assert all(torch.equal(first, other) for other in others)


def test_dropout_may_begin_at_any_time() -> None:
    late, early, x = nn.Dropout(0.0), nn.Dropout(0.5), torch.randn(4, 3)
    runner, always = stage_of(late), stage_of(early)
    outputs(runner, x, 2)
    late.p = 0.5
    assert torch.equal(outputs(runner, x, 1)[0], outputs(always, x, 1)[0])
    late.eval()
    assert torch.equal(outputs(runner, x, 1)[0], x)
    late.train()
    assert torch.equal(outputs(runner, x, 1)[0], outputs(always, x, 1)[0])


def test_random_numbers_that_first_appear_later_are_refused() -> None:
    class Late(nn.Module):
        draws = False

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(x, 0.5) if self.draws else x * 2

    block = Late()
    runner, x = stage_of(block), torch.randn(4, 3)
    outputs(runner, x, 2)
    block.draws = True
    with pytest.raises(RunError, match="but drew none in its first forward"), forbid_untracked_draws(CPU):
        outputs(runner, x, 1)


def test_calls_that_draw_nothing_are_not_intercepted() -> None:
    class Looked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch._C._len_torch_function_stack())
            return x * 2

    seen: list[int] = []
    outputs(stage_of(Looked()), torch.randn(4, 3), 3)
    assert seen[0] > seen[1] == seen[2]


def test_torch_func_transforms_are_left_to_autograd() -> None:
    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = torch.func.vmap(self.linear)(x)
            return found

    block, x = Mapped(), torch.randn(4, 3)
    runner = stage_of(block)
    _, graph = runner.run(given(x), 0, ROWS, None, keep=True, defer=True)
    runner.backward(graph, [torch.ones(4, 2)])
    runner.backward_weight(graph)
    expected = torch.autograd.grad(block(x).sum(), list(block.parameters()))
    for parameter, grad in zip(block.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, grad)
