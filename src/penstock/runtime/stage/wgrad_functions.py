"""Layers whose weight gradient is put off, so that the input gradient (I) and the weight gradient (W) are two jobs.

Each function below does what the torch function of the same name does, to the bit, forward and backward: it calls the
same kernels in the same form. In its backward it gives the gradient of its input at once, and hands over a job that
computes the gradients of its parameters. Where a call is of a kind that is not reproduced here, the function returns
None, and the caller leaves it to autograd: then its weight gradient is part of I. So it is with norms, whose kernels
make the gradients of input and weights together in about the time of one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor

WeightJob: TypeAlias = Callable[[], Sequence[Tensor]]
CAST_OF = "cast_of_parameter"
"""The name under which the cast of a parameter remembers it; `saving.py` does not ship such casts."""

Defer: TypeAlias = Callable[[Sequence[Tensor], WeightJob], None]
"""Called in the backward with parameters and the job that computes their gradients."""
PutOff: TypeAlias = tuple[Sequence[Tensor], WeightJob]


def is_trained(weight: Tensor | None) -> bool:
    """Whether it is a parameter itself (not computed from one) that gets a gradient."""
    return weight is not None and weight.requires_grad and weight.is_leaf


def _chosen(items: Iterable[Any], wanted: Sequence[bool]) -> list[Any]:
    return [item for item, want in zip(items, wanted, strict=True) if want]


def can_defer(*weights: Tensor | None) -> bool:
    """Whether the gradients of these parameters can be put off.

    All that need one are parameters themselves, and nobody has a hook on them, which autograd must call.
    """
    needed = [weight for weight in weights if weight is not None and weight.requires_grad]
    if not needed or not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return False
    return all(weight.is_leaf and not _has_hooks(weight) for weight in needed)


def _has_hooks(weight: Tensor) -> bool:
    return bool(weight._backward_hooks or weight._post_accumulate_grad_hooks)


class Deferred(torch.autograd.Function):
    """A function whose backward puts weight gradients off."""

    @classmethod
    def call(cls, *args: Any) -> Any:
        """What `apply` does, less its questions about torch.func, which `can_defer` has asked."""
        return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]


def unseen(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose own calls nobody looks at, as looking would cost more than the calls do.

    It is given what was saved: to ask for it may run a forward again, whose calls must be seen.
    """

    @wraps(backward)
    def found(ctx: Any, grad: Tensor) -> Any:
        saved = ctx.saved_tensors
        with torch._C.DisableTorchFunction():
            return backward(ctx, saved, grad)

    return found


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """The type to which autocast brings the arguments of matrix products here; None where it is off."""
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


def _cast(weight: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    if weight is None or dtype is None or dtype == weight.dtype:
        return weight
    found = weight.detach().to(dtype)
    setattr(found, CAST_OF, weight)
    return found


class _Linear(Deferred):
    @staticmethod
    def forward(
        ctx: Any, defer: Defer, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype | None
    ) -> Tensor:
        ctx.defer, ctx.dtype, ctx.weight, ctx.bias = defer, dtype, weight, bias
        used = _cast(weight, dtype)
        ctx.save_for_backward(x, used)
        return torch.nn.functional.linear(x, used, _cast(bias, dtype))  # type: ignore[arg-type]

    @staticmethod
    @unseen
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, weight = saved
        ctx.defer(*linear_job(grad, x, weight, ctx.weight, ctx.bias))
        x_grad = _linear_input(grad.reshape(-1, grad.shape[-1]), x, weight) if ctx.needs_input_grad[1] else None
        return None, x_grad, None, None, None


def linear_job(grad: Tensor, x: Tensor, used: Tensor, weight: Tensor, bias: Tensor | None) -> PutOff:
    """A linear layer's trained parameters, and what computes their gradients. `used` is the weight, cast if need be."""
    wanted = [is_trained(weight), is_trained(bias)]

    def job() -> list[Tensor]:
        flat = grad.reshape(-1, grad.shape[-1])
        found = [_linear_weight(flat, x, used)] if wanted[0] else []
        if wanted[1]:
            folded = x.dim() == 2 or x.is_contiguous()
            found.append(flat.sum(0) if folded else grad.sum(tuple(range(grad.dim() - 1))))
        return found

    return _chosen((weight, bias), wanted), job


def _is_column_major(matrix: Tensor) -> bool:
    return matrix.stride(0) == 1 and matrix.stride(1) == matrix.shape[0]


def _linear_input(flat: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    # torch gives the gradient the layout of what it is the gradient of.
    found = weight.t().mm(flat.t()).t() if _is_column_major(rows) else flat.mm(weight)
    return found.view(x.shape)


def _linear_weight(flat: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    if _is_column_major(weight.t()):
        return flat.t().mm(rows)
    return rows.t().mm(flat).t()


def convolution(
    defer: Defer, call: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any
) -> Tensor | None:
    """torch.conv1d, conv2d and conv3d; `call` is the one, `options` are stride, padding, dilation and groups."""
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
    """One number for every dimension."""
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values


class _Convolution(Deferred):
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
        used = _cast(weight, dtype)
        ctx.save_for_backward(x, used)
        return call(x, used, _cast(bias, dtype), *sizes, groups)

    @staticmethod
    @unseen
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, weight = saved
        form = ctx.sizes, ctx.groups
        ctx.defer(*convolution_job(grad, x, weight, ctx.weight, ctx.bias, *form))
        x_grad = None
        if ctx.needs_input_grad[2]:
            x_grad = _convolution_gradients(grad, x, weight, ctx.bias, *form, [True, False, False])[0]
        return None, None, x_grad, None, None, None, None, None


def convolution_job(
    grad: Tensor, x: Tensor, used: Tensor, weight: Tensor, bias: Tensor | None, sizes: Sequence[list[int]], groups: int
) -> PutOff:
    """A convolution's trained parameters, and what computes their gradients: both about as fast as one."""
    wanted = [is_trained(weight), is_trained(bias)]

    def job() -> list[Tensor]:
        return _chosen(_convolution_gradients(grad, x, used, bias, sizes, groups, [False, *wanted])[1:], wanted)

    return _chosen((weight, bias), wanted), job


def _convolution_gradients(
    grad: Tensor,
    x: Tensor,
    used: Tensor,
    bias: Tensor | None,
    sizes: Sequence[list[int]],
    groups: int,
    mask: list[bool],
) -> Any:
    """For input, weight and bias, as far as the mask has them."""
    stride, padding, dilation = sizes
    biases = [used.shape[0]] if bias is not None else None
    form = (stride, padding, dilation, False, [0] * len(stride), groups)
    return torch.ops.aten.convolution_backward.default(grad, x, used, biases, *form, mask)


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


class _Embedding(Deferred):
    @staticmethod
    def forward(ctx: Any, defer: Defer, indices: Tensor, weight: Tensor, padding: int, by_frequency: bool) -> Tensor:
        ctx.defer, ctx.weight, ctx.form = defer, weight, (weight.shape[0], padding, by_frequency)
        ctx.save_for_backward(indices)
        return torch.embedding(weight, indices, padding, by_frequency, False)

    @staticmethod
    @unseen
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        (indices,) = saved
        form = ctx.form
        ctx.defer([ctx.weight], lambda: [torch.ops.aten.embedding_dense_backward.default(grad, indices, *form)])
        return None, None, None, None, None
