"""Batch norm over rows that are on several ranks: the statistics, and their part of the gradient, are those of all."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from penstock.errors import InputError

AddUp: TypeAlias = Callable[[Tensor], Tensor]
"""Gives the sum over all that have rows."""


def batch_norm(
    add_up: AddUp,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.batch_norm in training."""
    return _BatchNorm.apply(add_up, x, weight, bias, running_mean, running_var, momentum, eps)  # type: ignore[no-any-return,no-untyped-call]


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        add_up: AddUp,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        wide = _wide(x)
        var, mean = torch.var_mean(wide, _all_but_channels(x), correction=0)
        num = torch.tensor([x.numel() // x.shape[1]], dtype=torch.float64, device=x.device)
        mean, var = mean.double(), var.double()
        total = add_up(torch.cat([num, num * mean, num * (var + mean.square())]))
        count, sums, squares = torch.split(total, [1, x.shape[1], x.shape[1]])
        if float(count) <= 1:
            raise InputError(
                f"batch norm in training needs more than one value a channel, not input of shape {tuple(x.shape)}",
                hint="Give more rows a micro-batch.",
            )
        mean = sums / count
        var = (squares / count - mean.square()).clamp_(min=0)
        if running_mean is not None and running_var is not None:
            running_mean.mul_(1 - momentum).add_(momentum * mean.to(running_mean))
            running_var.mul_(1 - momentum).add_(momentum * (var * count / (count - 1)).to(running_var))
        inverse = (var + eps).rsqrt().to(wide.dtype)
        narrow_mean, narrow_var = mean.to(wide.dtype), var.to(wide.dtype)
        ctx.add_up = add_up
        ctx.save_for_backward(x, weight, narrow_mean, inverse, count)
        found: Tensor = torch.native_batch_norm(x, weight, bias, narrow_mean, narrow_var, False, 0.0, eps)[0]
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mean, inverse, count = ctx.saved_tensors
        shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
        dims = _all_but_channels(x)
        wide = _wide(grad)
        normal = (_wide(x) - mean.view(shape)) * inverse.view(shape)
        bias_grad, weight_grad = wide.sum(dims), (wide * normal).sum(dims)
        x_grad = None
        if ctx.needs_input_grad[1]:
            total = ctx.add_up(torch.cat([bias_grad, weight_grad]).double()) / count
            of_all, along = torch.split(total.to(wide.dtype), [x.shape[1]] * 2)
            scale = inverse if weight is None else inverse * weight
            x_grad = (wide - of_all.view(shape) - normal * along.view(shape)) * scale.view(shape)
            x_grad = x_grad.to(x.dtype)
        of_weight = weight_grad if ctx.needs_input_grad[2] else None
        of_bias = bias_grad if ctx.needs_input_grad[3] else None
        return None, x_grad, of_weight, of_bias, None, None, None, None


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _wide(x: Tensor) -> Tensor:
    """Sums are taken in float32 at least."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
