"""Batch norm over the rows of all replicas: statistics, and their part of the gradient, cover the whole micro-batch."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from penstock.errors import InputError

AllReduce: TypeAlias = Callable[[Tensor], Tensor]
"""Sums a tensor over all replicas that have rows."""


def batch_norm(
    all_reduce: AllReduce,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.batch_norm in training mode, with statistics summed by `all_reduce`."""
    return _BatchNorm.apply(all_reduce, x, weight, bias, running_mean, running_var, momentum, eps)  # type: ignore[no-any-return,no-untyped-call]


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        all_reduce: AllReduce,
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
        num = torch.full((1,), x.numel() // x.shape[1], dtype=torch.float64, device=x.device)
        mean, var = mean.double(), var.double()
        total = all_reduce(torch.cat([num, num * mean, num * (var + mean.square())]))
        count, sums, squares = torch.split(total, [1, x.shape[1], x.shape[1]])
        if float(count) <= 1:
            raise InputError(
                "batch norm in training mode needs more than one value per channel, but its input has shape "
                f"{tuple(x.shape)}",
                hint="Increase the micro-batch size.",
            )
        mean = sums / count
        var = (squares / count - mean.square()).clamp_(min=0)
        if running_mean is not None and running_var is not None:
            running_mean.mul_(1 - momentum).add_(momentum * mean.to(running_mean))
            running_var.mul_(1 - momentum).add_(momentum * (var * count / (count - 1)).to(running_var))
        inverse = (var + eps).rsqrt().to(wide.dtype)
        narrow_mean, narrow_var = mean.to(wide.dtype), var.to(wide.dtype)
        ctx.all_reduce = all_reduce
        ctx.save_for_backward(x, weight, narrow_mean, inverse, count)
        out: Tensor = torch.native_batch_norm(x, weight, bias, narrow_mean, narrow_var, False, 0.0, eps)[0]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mean, inverse, count = ctx.saved_tensors
        shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
        dims = _all_but_channels(x)
        wide = _wide(grad)
        normalized = (_wide(x) - mean.view(shape)) * inverse.view(shape)
        bias_grad, weight_grad = wide.sum(dims), (wide * normalized).sum(dims)
        x_grad = None
        if ctx.needs_input_grad[1]:
            total = ctx.all_reduce(torch.cat([bias_grad, weight_grad]).double()) / count
            mean_grad, mean_product = torch.split(total.to(wide.dtype), [x.shape[1]] * 2)
            scale = inverse if weight is None else inverse * weight
            x_grad = (wide - mean_grad.view(shape) - normalized * mean_product.view(shape)) * scale.view(shape)
            x_grad = x_grad.to(x.dtype)
        _, _, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        param_grads = (weight_grad if needs_weight else None, bias_grad if needs_bias else None)
        return None, x_grad, *param_grads, None, None, None, None


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _wide(x: Tensor) -> Tensor:
    """Cast half precision to float32 before summing."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
