"""Layers whose weight gradient is put off give the bits of ordinary autograd."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from penstock.runtime.rng import Streams
from penstock.runtime.stage.function_mode import Interception
from penstock.runtime.stage.wgrad_hooks import Listening
from penstock.runtime.stage.wgrad_queue import WeightJobs
from penstock.runtime.tensors.rows import Rows

torch.set_num_threads(1)


def by_functions(model: nn.Module, jobs: WeightJobs) -> AbstractContextManager[Any]:
    return nullcontext()


def by_listening(model: nn.Module, jobs: WeightJobs) -> AbstractContextManager[Any]:
    return Listening(model.named_modules(), model.parameters()).to(jobs.defer)


Way: TypeAlias = Callable[[nn.Module, WeightJobs], AbstractContextManager[Any]]


def gradients(
    model: nn.Module, x: Tensor, weigh: Callable[[Tensor], Tensor], *, apart: Way | None, bf16: bool
) -> tuple[list[Tensor | None], int]:
    """Output, input gradient and parameter gradients; and how many jobs were put off."""
    model.zero_grad()
    x = x.detach()
    if x.is_floating_point():
        x.requires_grad_()
    jobs = WeightJobs()
    streams = Streams(0, 0, Rows(0, x.shape[0]), is_split=False, device=x.device)
    parameters = list(model.parameters())
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        if apart is not None:
            with Interception(streams, jobs.defer), apart(model, jobs):
                out = model(x)
        else:
            out = model(x)
    with jobs.set_aside(parameters):
        weigh(out).backward()  # type: ignore[no-untyped-call]
    if apart is not None:
        assert all(parameter.grad is None for parameter in parameters)
    count = len(jobs)
    jobs.run()
    return [out.detach(), x.grad, *[parameter.grad for parameter in parameters]], count


def check(model: nn.Module, x: Tensor, *, bf16: bool = False, num_jobs: int | None = None) -> None:
    def weigh(out: Tensor) -> Tensor:
        return (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum()

    expected, _ = gradients(model, x, weigh, apart=None, bf16=bf16)
    for apart in (by_functions, by_listening):
        found, count = gradients(model, x, weigh, apart=apart, bf16=bf16)
        for one, other in zip(expected, found, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one.dtype == other.dtype
                assert one.shape == other.shape
                assert torch.equal(one, other)
        assert count == (len(list(model.parameters())) if num_jobs is None else num_jobs)


class Turned(nn.Module):
    """Gives its layer a tensor whose memory is not in order."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1))  # type: ignore[no-any-return]


class Stretched(nn.Module):
    """The gradient that comes to its layer is not in order."""

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
def test_norms_are_not_put_off(bf16: bool) -> None:
    torch.manual_seed(0)
    check(nn.LayerNorm(33), torch.randn(3, 5, 33), bf16=bf16, num_jobs=0)
    check(nn.GroupNorm(3, 6), torch.randn(4, 6, 5, 5), bf16=bf16, num_jobs=0)


def test_embedding() -> None:
    indices = torch.tensor([[1, 2, 2, 0], [5, 1, 2, 5]])
    check(nn.Embedding(6, 9), indices)
    check(nn.Embedding(6, 9, padding_idx=2), indices)
    check(nn.Embedding(6, 9, padding_idx=-1, scale_grad_by_freq=True), indices)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_chain_of_everything(bf16: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Embedding(11, 32), nn.LayerNorm(32), nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32), nn.LayerNorm(32)]
    check(nn.Sequential(*layers), torch.randint(11, (4, 6)), bf16=bf16, num_jobs=5)


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
    check(Twice(times), torch.randn(5, 32), bf16=bf16, num_jobs=2 * times)


class Mixed(nn.Module):
    """A weight used by a layer, and by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.scale = nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) @ self.layer.weight * self.scale


def test_a_parameter_also_used_in_other_ways() -> None:
    torch.manual_seed(0)
    check(Mixed(), torch.randn(5, 32), num_jobs=2)


def test_gradients_are_added_to_what_is_there() -> None:
    torch.manual_seed(0)
    model, x = Mixed(), torch.randn(5, 32)
    found = []
    for apart in (None, by_functions, by_listening):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        jobs = WeightJobs()
        streams = Streams(0, 0, Rows(0, 5), is_split=False, device=x.device)
        heard = nullcontext() if apart is None else apart(model, jobs)
        with Interception(streams, None if apart is None else jobs.defer), heard:
            out = model(x)
        with nullcontext() if apart is None else jobs.set_aside(list(model.parameters())):
            out.sum().backward()
        jobs.run()
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

    check(Attention(), torch.randn(3, 5, 32), num_jobs=4)


def test_frozen_and_computed_weights_are_left_to_autograd() -> None:
    torch.manual_seed(0)
    frozen = nn.Linear(8, 8)
    frozen.weight.requires_grad_(False)
    check(nn.Sequential(nn.Linear(8, 8), frozen), torch.randn(4, 8), num_jobs=3)
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    check(normed, torch.randn(4, 8), num_jobs=0)
    check(nn.Conv2d(4, 6, 3, padding="same"), torch.randn(2, 4, 6, 6), num_jobs=0)


def test_parameters_with_hooks_are_left_to_autograd() -> None:
    """Somebody masks a gradient: a job of ours would not ask."""
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    model = nn.Sequential(first, second)
    first.weight.register_hook(lambda grad: grad * torch.eye(6))  # type: ignore[no-untyped-call]
    check(model, torch.randn(4, 6), num_jobs=2)
    called: list[Tensor] = []
    second.bias.register_post_accumulate_grad_hook(called.append)  # type: ignore[no-untyped-call]
    check(model, torch.randn(4, 6), num_jobs=0)
    assert len(called) == 3
