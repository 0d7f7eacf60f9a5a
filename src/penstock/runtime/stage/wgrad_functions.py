"""Weight-gradient functions: layers whose weight gradient (W) is computed later than their input gradient (I).

Each function below computes what the torch function of the same name computes, to the bit, forward and backward: it
calls the same kernels with the same layouts. Its backward returns the gradient of the input at once, and passes a
function that computes the gradients of the parameters to `defer`. For calls that are not reproduced here the function
returns None and the caller leaves the call to autograd; then the weight gradient is part of I. Norms are such a case:
their kernels compute the gradients of input and weights together, in about the time of one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor

from penstock.runtime.stage.cast_cache import cast_once

WeightGradFn: TypeAlias = Callable[[], Sequence[Tensor]]
CAST_OF = "cast_of_parameter"
"""Attribute of a cast parameter that refers to the parameter. Saved-tensor transfers do not send such casts."""

Defer: TypeAlias = Callable[[Sequence[Tensor], WeightGradFn], None]
"""Called in the backward with parameters and the function that computes their gradients."""
DeferredGrads: TypeAlias = tuple[Sequence[Tensor], WeightGradFn]


def is_trained(weight: Tensor | None) -> bool:
    """Whether the tensor is a parameter (not computed from one) that requires a gradient."""
    return weight is not None and weight.requires_grad and weight.is_leaf


def _select(items: Iterable[Any], mask: Sequence[bool]) -> list[Any]:
    return [item for item, selected in zip(items, mask, strict=True) if selected]


def can_defer(*backward_weight: Tensor | None) -> bool:
    """Whether the gradients of these parameters can be deferred.

    All that need a gradient must be leaves, and none may have a gradient hook, which autograd must call.
    """
    needed = [weight for weight in backward_weight if weight is not None and weight.requires_grad]
    if not needed or not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return False
    return all(weight.is_leaf and not _has_hooks(weight) for weight in needed)


def _has_hooks(weight: Tensor) -> bool:
    return bool(weight._backward_hooks or weight._post_accumulate_grad_hooks)


class DeferredFunction(torch.autograd.Function):
    """An autograd function whose backward defers weight gradients."""

    @classmethod
    def call(cls, *args: Any) -> Any:
        """`apply` without its checks for torch.func transforms, which `can_defer` has done."""
        return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]


def without_function_modes(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward so that function modes do not see its calls, which would cost more than the calls do.

    The backward receives its saved tensors as an argument. Reading them may recompute a forward, whose calls function
    modes must see.
    """

    @wraps(backward)
    def wrapper(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors
        with torch._C.DisableTorchFunction():
            return backward(ctx, saved, grad)

    return wrapper


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The type to which autocast casts the arguments of matrix products; None if autocast is off."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return None
    return torch.get_autocast_dtype(kind)


def linear(defer: Defer, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """torch.nn.functional.linear."""
    if not can_defer(weight, bias) or x.dim() < 2 or weight.dim() != 2 or x.numel() == 0:
        return None
    dtype = autocast_dtype(x)
    if dtype is not None:
        x = x.to(dtype)
    elif x.dtype != weight.dtype:
        return None
    return _Linear.call(defer, x, weight, bias, dtype)  # type: ignore[no-any-return]


def cast_parameter(weight: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    """The parameter in the type in which autocast computes."""
    if weight is None or dtype is None or dtype == weight.dtype:
        return weight
    cast = cast_once(weight, dtype)
    setattr(cast, CAST_OF, weight)
    return cast


class _Linear(DeferredFunction):
    @staticmethod
    def forward(
        ctx: Any, defer: Defer, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None
    ) -> Tensor:
        ctx.defer, ctx.dtype, ctx.weight, ctx.bias = defer, dtype, weight, bias
        cast = cast_parameter(weight, dtype)
        ctx.save_for_backward(x, cast)
        return torch.nn.functional.linear(x, cast, cast_parameter(bias, dtype))  # type: ignore[arg-type]

    @staticmethod
    @without_function_modes
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, weight = saved
        ctx.defer(*linear_grads(grad, x, weight, ctx.weight, ctx.bias))
        x_grad = linear_input_grad(grad.reshape(-1, grad.shape[-1]), x, weight) if ctx.needs_input_grad[1] else None
        return None, x_grad, None, None, None


def linear_grads(grad: Tensor, x: Tensor, cast: Tensor, weight: Tensor, bias: Tensor | None) -> DeferredGrads:
    """The trained parameters of a linear layer, and the function that computes their gradients.

    `cast` is the weight in the type in which the layer computes.
    """
    needs_weight, needs_bias = is_trained(weight), is_trained(bias)

    def compute() -> list[Tensor]:
        flat = grad.reshape(-1, grad.shape[-1])
        grads = [linear_weight_grad(flat, x, cast)] if needs_weight else []
        if needs_bias:
            folded = x.dim() == 2 or x.is_contiguous()
            grads.append(flat.sum(0) if folded else grad.sum(tuple(range(grad.dim() - 1))))
        return grads

    return _select((weight, bias), (needs_weight, needs_bias)), compute


def _is_column_major(matrix: Tensor) -> bool:
    return matrix.stride(0) == 1 and matrix.stride(1) == matrix.shape[0]


def linear_input_grad(flat: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a linear layer's input."""
    rows = x.reshape(-1, x.shape[-1])
    # torch gives the gradient the layout of the input.
    x_grad = weight.t().mm(flat.t()).t() if _is_column_major(rows) else flat.mm(weight)
    return x_grad.view(x.shape)


def linear_weight_grad(flat: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a linear layer's weight."""
    rows = x.reshape(-1, x.shape[-1])
    if _is_column_major(weight.t()):
        return flat.t().mm(rows)
    return rows.t().mm(flat).t()


def convolution(
    defer: Defer, call: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any
) -> Tensor | None:
    """torch.conv1d, conv2d or conv3d, given as `call`. `options` are stride, padding, dilation and groups."""
    stride, padding, dilation, groups = options
    if not can_defer(weight, bias) or x.dim() != weight.dim() or isinstance(padding, str) or x.numel() == 0:
        return None
    dtype = autocast_dtype(x)
    if dtype is not None:
        x = x.to(dtype)
    elif x.dtype != weight.dtype:
        return None
    sizes = [spread(value, x.dim() - 2) for value in (stride, padding, dilation)]
    return _Convolution.call(defer, call, x, weight, bias, dtype, sizes, groups)  # type: ignore[no-any-return]


def spread(value: Any, count: int) -> list[int]:
    """One number for each of `count` dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


class _Convolution(DeferredFunction):
    @staticmethod
    def forward(
        ctx: Any,
        defer: Defer,
        call: Callable[..., Tensor],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype | None,
        sizes: list[list[int]],
        groups: int,
    ) -> Tensor:
        ctx.defer, ctx.weight, ctx.bias, ctx.sizes, ctx.groups = defer, weight, bias, sizes, groups
        cast = cast_parameter(weight, dtype)
        ctx.save_for_backward(x, cast)
        return call(x, cast, cast_parameter(bias, dtype), *sizes, groups)

    @staticmethod
    @without_function_modes
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, weight = saved
        options = ctx.sizes, ctx.groups
        ctx.defer(*convolution_grads(grad, x, weight, ctx.weight, ctx.bias, *options))
        x_grad = None
        if ctx.needs_input_grad[2]:
            x_grad = _convolution_gradients(grad, x, weight, ctx.bias, *options, [True, False, False])[0]
        return None, None, x_grad, None, None, None, None, None


def convolution_grads(
    grad: Tensor, x: Tensor, cast: Tensor, weight: Tensor, bias: Tensor | None, sizes: Sequence[list[int]], groups: int
) -> DeferredGrads:
    """The trained parameters of a convolution, and the function that computes their gradients.

    Both gradients together take about as long as one. `cast` is the weight in the type in which the layer computes.
    """
    mask = [is_trained(weight), is_trained(bias)]

    def compute() -> list[Tensor]:
        return _select(_convolution_gradients(grad, x, cast, bias, sizes, groups, [False, *mask])[1:], mask)

    return _select((weight, bias), mask), compute


def _convolution_gradients(
    grad: Tensor,
    x: Tensor,
    cast: Tensor,
    bias: Tensor | None,
    sizes: Sequence[list[int]],
    groups: int,
    mask: list[bool],
) -> Any:
    """The gradients of input, weight and bias, where the mask is set."""
    stride, padding, dilation = sizes
    bias_sizes = [cast.shape[0]] if bias is not None else None
    options = (stride, padding, dilation, False, [0] * len(stride), groups)
    return torch.ops.aten.convolution_backward.default(grad, x, cast, bias_sizes, *options, mask)


def embedding(
    defer: Defer,
    indices: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # noqa: ARG001
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor | None:
    """torch.nn.functional.embedding."""
    if not can_defer(weight) or sparse or max_norm is not None:
        return None
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    return _Embedding.call(defer, indices, weight, padding, scale_grad_by_freq)  # type: ignore[no-any-return]


class _Embedding(DeferredFunction):
    @staticmethod
    def forward(ctx: Any, defer: Defer, indices: Tensor, weight: Tensor, padding: int, by_frequency: bool) -> Tensor:
        ctx.defer, ctx.weight, ctx.options = defer, weight, (weight.shape[0], padding, by_frequency)
        ctx.save_for_backward(indices)
        return torch.embedding(weight, indices, padding, by_frequency, False)

    @staticmethod
    @without_function_modes
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        (indices,) = saved
        options = ctx.options
        ctx.defer([ctx.weight], lambda: [torch.ops.aten.embedding_dense_backward.default(grad, indices, *options)])
        return None, None, None, None, None
