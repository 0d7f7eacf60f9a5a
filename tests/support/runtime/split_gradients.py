"""Gradients of a module by ordinary autograd and with deferred weight gradients, compared to the bit."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from penstock.runtime.rng import RowRng
from penstock.runtime.stage.function_mode import StageFunctionMode
from penstock.runtime.stage.wgrad_hooks import WeightGradHooks
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors.rows import Rows


def by_functions(model: nn.Module, queue: WeightGradQueue) -> AbstractContextManager[Any]:
    return nullcontext()


def by_hooks(model: nn.Module, queue: WeightGradQueue) -> AbstractContextManager[Any]:
    return WeightGradHooks(model.named_modules(), model.parameters()).install(queue.defer)


Method: TypeAlias = Callable[[nn.Module, WeightGradQueue], AbstractContextManager[Any]]


def gradients(
    model: nn.Module, x: Tensor, weigh: Callable[[Tensor], Tensor], *, split: Method | None, bf16: bool
) -> tuple[list[Tensor | None], int]:
    """Output, input gradient and parameter gradients; and the number of deferred gradients."""
    model.zero_grad()
    x = x.detach()
    if x.is_floating_point():
        x.requires_grad_()
    queue = WeightGradQueue()
    rng = RowRng(0, 0, Rows(0, x.shape[0]), is_split=False, device=x.device)
    parameters = list(model.parameters())
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        if split is not None:
            with StageFunctionMode(rng, queue.defer), split(model, queue):
                out = model(x)
        else:
            out = model(x)
    with queue.capture_grads(parameters):
        weigh(out).backward()  # type: ignore[no-untyped-call]
    if split is not None:
        assert all(parameter.grad is None for parameter in parameters)
    count = len(queue)
    queue.run()
    return [out.detach(), x.grad, *[parameter.grad for parameter in parameters]], count


def check(model: nn.Module, x: Tensor, *, bf16: bool = False, num_deferred: int | None = None) -> None:
    def weigh(out: Tensor) -> Tensor:
        return (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum()

    expected, _ = gradients(model, x, weigh, split=None, bf16=bf16)
    for split in (by_functions, by_hooks):
        found, count = gradients(model, x, weigh, split=split, bf16=bf16)
        for one, other in zip(expected, found, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one.dtype == other.dtype
                assert one.shape == other.shape
                assert torch.equal(one, other)
        assert count == (len(list(model.parameters())) if num_deferred is None else num_deferred)
