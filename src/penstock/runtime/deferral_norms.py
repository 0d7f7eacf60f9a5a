"""Norms whose weight gradient is put off; see `deferral.py`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from penstock.runtime.deferral import Defer, Deferred, can_defer, defer_both, unseen


def layer_norm(
    defer: Defer,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """torch.nn.functional.layer_norm."""
    if not _can_norm(x, weight, bias):
        return None
    return _LayerNorm.call(defer, x, list(normalized_shape), weight, bias, eps)  # type: ignore[no-any-return]


def group_norm(
    defer: Defer,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """torch.nn.functional.group_norm."""
    # Asked for the weights' gradients alone, torch 2.13's kernel crashes where channels come last in memory.
    if not _can_norm(x, weight, bias) or x.dim() < 2 or not x.is_contiguous():
        return None
    return _GroupNorm.call(defer, x, num_groups, weight, bias, eps)  # type: ignore[no-any-return]


def _can_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    # With mixed types, and what autocast then does, differs between kinds of devices: that is left to torch.
    return (
        x.numel() > 0
        and can_defer(weight, bias)
        and all(item is None or item.dtype == x.dtype for item in (weight, bias))
    )


class _LayerNorm(Deferred):
    @staticmethod
    def forward(
        ctx: Any, defer: Defer, x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        out, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.defer, ctx.shape, ctx.weight, ctx.bias = defer, shape, weight, bias
        ctx.save_for_backward(x, mean, rstd)
        return out

    @staticmethod
    @unseen
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, mean, rstd = saved
        weight, bias = ctx.weight, ctx.bias

        def gradients(mask: list[bool]) -> Any:
            return torch.ops.aten.native_layer_norm_backward(grad, x, ctx.shape, mean, rstd, weight, bias, mask)

        defer_both(ctx, gradients)
        x_grad = gradients([True, False, False])[0] if ctx.needs_input_grad[1] else None
        return None, x_grad, None, None, None, None


class _GroupNorm(Deferred):
    @staticmethod
    def forward(
        ctx: Any, defer: Defer, x: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor:
        rows, channels = x.shape[0], x.shape[1]
        inner = x.numel() // (rows * channels)
        out, mean, rstd = torch.native_group_norm(x, weight, bias, rows, channels, inner, num_groups, eps)
        ctx.defer, ctx.form, ctx.weight, ctx.bias = defer, (rows, channels, inner, num_groups), weight, bias
        ctx.save_for_backward(x, mean, rstd)
        return out

    @staticmethod
    @unseen
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, mean, rstd = saved
        weight, form = ctx.weight, ctx.form
        grad = grad.contiguous()

        def gradients(mask: list[bool]) -> Any:
            return torch.ops.aten.native_group_norm_backward(grad, x, mean, rstd, weight, *form, mask)

        defer_both(ctx, gradients)
        x_grad = gradients([True, False, False])[0] if ctx.needs_input_grad[1] else None
        return None, x_grad, None, None, None, None
