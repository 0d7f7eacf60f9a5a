"""Weight-gradient hooks: the graph that they leave, and the limits that they set."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.errors import RunError
from penstock.runtime.rng import RowRng
from penstock.runtime.stage.function_mode import StageFunctionMode
from penstock.runtime.stage.wgrad_hooks import WeightGradHooks
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors.rows import Rows

torch.set_num_threads(1)


def hooks_of(model: nn.Module) -> WeightGradHooks:
    return WeightGradHooks(model.named_modules(), model.parameters())


def names_in_graph(out: Tensor) -> set[str]:
    found, waiting = set(), [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None:
            found.add(node.name())
            waiting += [after for after, _ in node.next_functions]
    return found


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own
@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_blocks_keep_their_own_backward(in_place: bool) -> None:
    block = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))
    x = torch.randn(3, 4, requires_grad=True)
    block(x).sum().backward()
    expected = [item.grad for item in block.parameters()]
    block.zero_grad()
    if in_place:
        block.compile(backend="aot_eager")
    compiled: nn.Module = block if in_place else cast("nn.Module", torch.compile(block, backend="aot_eager"))
    model = nn.Sequential(compiled, nn.Linear(4, 2))
    queue = WeightGradQueue()
    rng = RowRng(0, 0, Rows(0, 3), is_split=False, device=torch.device("cpu"))
    with StageFunctionMode(rng, queue.defer), hooks_of(model).install(queue.defer):
        out = model[0](x)
    with queue.capture_grads(list(block.parameters())):
        out.sum().backward()
    assert not len(queue), "nothing is deferred"
    queue.run()
    for item, expected_grad in zip(block.parameters(), expected, strict=True):
        assert item.grad is not None
        assert expected_grad is not None
        assert torch.equal(item.grad, expected_grad)


def test_the_graph_holds_torchs_own_functions_and_no_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    queue = WeightGradQueue()
    x = torch.randn(3, 4, requires_grad=True)
    with hooks_of(model).install(queue.defer):
        out = model(x)
    assert not [name for name in names_in_graph(out) if "_Linear" in name]
    assert "torch::autograd::AccumulateGrad" in names_in_graph(out)
    with queue.capture_grads([]):
        out.sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert len(queue) == 4
    queue.run()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_layers_are_restored_when_hooks_are_removed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    own_forward = model[1].forward
    model[1].forward = lambda x: own_forward(x) + 1
    replacement = model[1].__dict__["forward"]
    hooks = hooks_of(model)
    with hooks.install(WeightGradQueue().defer):
        assert "forward" in model[0].__dict__
        assert model[1].__dict__["forward"] is replacement
    assert "forward" not in model[0].__dict__
    assert model[1].__dict__["forward"] is replacement
    model[0].forward = replacement
    with hooks.install(WeightGradQueue().defer):
        assert model[0].__dict__["forward"] is replacement
    assert model[0].__dict__.pop("forward") is replacement
    with pytest.raises(ZeroDivisionError), hooks_of(model).install(WeightGradQueue().defer):
        raise ZeroDivisionError
    assert "forward" not in model[0].__dict__


def test_input_by_its_name_and_gradients_that_never_come() -> None:
    layer, queue = nn.Linear(4, 4), WeightGradQueue()
    x = torch.randn(3, 4, requires_grad=True)
    with hooks_of(layer).install(queue.defer):
        layer(input=x)
        out = layer(input=x)
    with queue.capture_grads([]):
        out.sum().backward()
    assert len(queue) == 2


def _relu(out: Tensor, _: Tensor) -> Tensor:
    return out.relu_()


def _add(out: Tensor, x: Tensor) -> Tensor:
    out += x
    return out


def _part(out: Tensor, _: Tensor) -> Tensor:
    out[..., :2] *= 2
    return out


def _parts(out: Tensor, _: Tensor) -> Tensor:
    one, two = out[..., :1], out[..., 1:2]
    return torch.cat([one.mul_(3), two.add_(2)], -1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("change", [_relu, _add, _part, _parts])
@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8), (2, 1, 3, 8), (2, 8, 5), (2, 8, 4, 4), (2, 8, 3, 3, 3)])
def test_an_output_changed_in_place(shape: tuple[int, ...], change: Callable[..., Tensor], bias: bool) -> None:
    torch.manual_seed(0)
    convolution = {5: nn.Conv1d, 4: nn.Conv2d, 3: nn.Conv3d}.get(shape[-1])
    layer = nn.Linear(8, 8, bias=bias) if convolution is None else convolution(8, 8, 3, padding=1, bias=bias)
    x = torch.randn(shape, requires_grad=True)
    change(layer(x * 1), x).square().sum().backward()  # type: ignore[no-untyped-call]
    expected = [x.grad, *[parameter.grad for parameter in layer.parameters()]]
    layer.zero_grad()
    x.grad = None
    queue = WeightGradQueue()
    with hooks_of(layer).install(queue.defer):
        out = change(layer(x * 1), x)
    with queue.capture_grads([]):
        out.square().sum().backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in layer.parameters())
    queue.run()
    for found, expected_grad in zip(
        [x.grad, *[parameter.grad for parameter in layer.parameters()]], expected, strict=True
    ):
        assert found is not None
        assert expected_grad is not None
        assert torch.equal(found, expected_grad)


def test_an_input_changed_in_place_is_refused_as_torch_does() -> None:
    layer, queue = nn.Linear(4, 4), WeightGradQueue()
    x = torch.randn(3, 4, requires_grad=True) * 1
    with hooks_of(nn.Sequential(layer)).install(queue.defer):
        out = layer(x)
    x.add_(1)
    with pytest.raises(RunError, match="the input of 0 was changed in place"), queue.capture_grads([]):
        out.sum().backward()


class Again(nn.Module):
    """Recomputes its layers in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)  # type: ignore[no-any-return]


def test_blocks_that_recompute_themselves() -> None:
    model, queue = Again(), WeightGradQueue()
    x = torch.randn(3, 4, requires_grad=True)
    model(x).sum().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    hooks = hooks_of(model)
    with hooks.install(queue.defer):
        out = model(x)
    with hooks.install(queue.defer), queue.capture_grads([]):
        out.sum().backward()
    assert len(queue) == 4
    queue.run()
    for parameter, expected_grad in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert expected_grad is not None
        assert torch.equal(parameter.grad, expected_grad)


class Centred(nn.Conv2d):
    """Runs on a weight that it computes."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: A002
        return super()._conv_forward(input, weight - weight.mean(), bias)  # type: ignore[no-any-return]


def test_a_layer_of_the_users_own_that_computes_its_weight() -> None:
    layer = Centred(3, 3, 3)
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    layer(x).square().sum().backward()
    expected = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    queue = WeightGradQueue()
    with hooks_of(layer).install(queue.defer):
        out = layer(x)
    with queue.capture_grads([]):
        out.square().sum().backward()
    queue.run()
    for parameter, expected_grad in zip(layer.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert expected_grad is not None
        assert torch.equal(parameter.grad, expected_grad)


class Slope(nn.Module):
    """Its output is the slope of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(self.layer(x).square().sum(), x, create_graph=True)
        return found


@pytest.mark.parametrize("is_hooked", [True, False])
def test_a_block_that_calls_autograd_in_its_forward_is_refused(is_hooked: bool) -> None:
    model, queue = Slope(), WeightGradQueue()
    x = torch.randn(3, 4, requires_grad=True)
    rng = RowRng(0, 0, Rows(0, 3), is_split=False, device=x.device)
    mode = hooks_of(model).install(queue.defer) if is_hooked else StageFunctionMode(rng, queue.defer)
    with pytest.raises(RunError, match=r"calls autograd inside forward\(\)"), mode:
        model(x)
