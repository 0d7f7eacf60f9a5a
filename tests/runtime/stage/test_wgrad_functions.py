"""Deferred weight gradients have the bits of ordinary autograd."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from penstock.runtime.rng import RowRng
from penstock.runtime.stage.function_mode import StageFunctionMode
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors.rows import Rows
from tests.support.runtime.split_gradients import by_functions, by_hooks, check

torch.set_num_threads(1)


class Turned(nn.Module):
    """Gives its layer a tensor that is not contiguous."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1))  # type: ignore[no-any-return]


class Stretched(nn.Module):
    """The gradient of its layer's output is not contiguous."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).transpose(0, 1).contiguous() * 1.5  # type: ignore[no-any-return]


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 33), (1, 33), (3, 5, 33), (1, 1, 33), (2, 3, 5, 33)])
@pytest.mark.parametrize("wrap", [nn.Identity, Turned, Stretched])
def test_linear(wrap: Any, shape: tuple[int, ...], bias: bool, bf16: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(shape[0] if wrap is Turned and len(shape) == 2 else 33, 65, bias=bias)
    model = nn.Sequential(layer) if wrap is nn.Identity else wrap(layer)
    check(model, torch.randn(shape), bf16=bf16)


def test_linear_of_one_feature_and_of_one_output() -> None:
    torch.manual_seed(0)
    check(nn.Linear(1, 9), torch.randn(6, 1))
    check(nn.Linear(9, 1), torch.randn(6, 9))
    check(nn.Linear(1, 1), torch.randn(1, 1))


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("make", "shape", "form"),
    [
        (nn.Conv1d, (3, 4, 17), {}),
        (nn.Conv2d, (3, 4, 9, 9), {}),
        (nn.Conv2d, (3, 4, 9, 9), {"padding": 1, "stride": 2, "groups": 2}),
        (nn.Conv2d, (1, 4, 9, 9), {"padding": (1, 0), "dilation": 2}),
        (nn.Conv3d, (2, 4, 5, 5, 5), {"padding": 1}),
    ],
)
def test_convolutions(make: Any, shape: tuple[int, ...], form: dict[str, Any], bias: bool, bf16: bool) -> None:
    torch.manual_seed(0)
    check(make(4, 6, 3, bias=bias, **form), torch.randn(shape), bf16=bf16)


def test_convolution_of_channels_last() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 9, 9).to(memory_format=torch.channels_last)
    check(nn.Conv2d(4, 6, 3), x)
    check(nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last), x)  # type: ignore[call-overload]


@pytest.mark.parametrize("bf16", [False, True])
def test_norms_are_not_deferred(bf16: bool) -> None:
    torch.manual_seed(0)
    check(nn.LayerNorm(33), torch.randn(3, 5, 33), bf16=bf16, num_deferred=0)
    check(nn.GroupNorm(3, 6), torch.randn(4, 6, 5, 5), bf16=bf16, num_deferred=0)


def test_embedding() -> None:
    indices = torch.tensor([[1, 2, 2, 0], [5, 1, 2, 5]])
    check(nn.Embedding(6, 9), indices)
    check(nn.Embedding(6, 9, padding_idx=2), indices)
    check(nn.Embedding(6, 9, padding_idx=-1, scale_grad_by_freq=True), indices)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_chain_of_everything(bf16: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Embedding(11, 32), nn.LayerNorm(32), nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32), nn.LayerNorm(32)]
    check(nn.Sequential(*layers), torch.randint(11, (4, 6)), bf16=bf16, num_deferred=5)


class Twice(nn.Module):
    """One layer, used several times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.layer(x))
        return x


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("times", [2, 3, 4])
def test_a_parameter_used_several_times_is_summed_in_the_same_order(times: int, bf16: bool) -> None:
    torch.manual_seed(0)
    check(Twice(times), torch.randn(5, 32), bf16=bf16, num_deferred=2 * times)


class Mixed(nn.Module):
    """A weight used by a layer, and by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.scale = nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) * self.layer.weight.sum(0) * self.scale


def test_a_parameter_also_used_in_other_ways() -> None:
    torch.manual_seed(0)
    check(Mixed(), torch.randn(5, 32), num_deferred=2)


def test_gradients_are_accumulated() -> None:
    torch.manual_seed(0)
    model, x = Mixed(), torch.randn(5, 32)
    found = []
    for split in (None, by_functions, by_hooks):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        queue = WeightGradQueue()
        rng = RowRng(0, 0, Rows(0, 5), is_split=False, device=x.device)
        hooks = nullcontext() if split is None else split(model, queue)
        with StageFunctionMode(rng, None if split is None else queue.defer), hooks:
            out = model(x)
        with nullcontext() if split is None else queue.capture_grads(list(model.parameters())):
            out.sum().backward()
        queue.run()
        found.append([parameter.grad for parameter in model.parameters()])
    for expected, *others in zip(*found, strict=True):
        for other in others:
            assert expected is not None
            assert other is not None
            assert torch.equal(expected, other)


def test_attention() -> None:
    torch.manual_seed(0)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]

    check(Attention(), torch.randn(3, 5, 32), num_deferred=4)


def test_frozen_and_computed_weights_are_left_to_autograd() -> None:
    torch.manual_seed(0)
    frozen = nn.Linear(8, 8)
    frozen.weight.requires_grad_(False)
    check(nn.Sequential(nn.Linear(8, 8), frozen), torch.randn(4, 8), num_deferred=3)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    check(normed, torch.randn(4, 8), num_deferred=0)
    check(nn.Conv2d(4, 6, 3, padding="same"), torch.randn(2, 4, 6, 6), num_deferred=0)


def test_parameters_with_hooks_are_left_to_autograd() -> None:
    """A hook masks a gradient: a deferred gradient would bypass it."""
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    model = nn.Sequential(first, second)
    first.weight.register_hook(lambda grad: grad * torch.eye(6))  # type: ignore[no-untyped-call]
    check(model, torch.randn(4, 6), num_deferred=2)
    called: list[Tensor] = []
    second.bias.register_post_accumulate_grad_hook(called.append)  # type: ignore[no-untyped-call]
    check(model, torch.randn(4, 6), num_deferred=0)
    assert len(called) == 3
