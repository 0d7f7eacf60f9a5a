"""Weight-gradient functions of matrix products that models call themselves: torch.addmm, matmul, bmm, einsum, ...

`addmm` runs the kernels of torch.addmm and torch.mm with a parameter as the second matrix. `product` defers the weight
gradient of any function: it keeps a separate autograd graph of the call, whose backward first runs to the inputs and
later to the parameters. The kernels, and the bits, are those of one backward in both cases. A separate graph cannot be
replayed on another rank, so `product` leaves calls to autograd while saved-tensor hooks are active, and under autocast,
which casts the operands inside some of the functions. A product with a transposed parameter, such as `x @ A.T`, runs as
the linear layer that it is. As in `wgrad_functions.py`, None means that the call is left to autograd.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from penstock.runtime.stage.wgrad_functions import (
    Defer,
    DeferredFunction,
    DeferredGrads,
    autocast_dtype,
    can_defer,
    cast_parameter,
    is_trained,
    linear,
    linear_input_grad,
    linear_weight_grad,
    without_function_modes,
)

_top_saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks


def addmm(defer: Defer, bias: Tensor | None, x: Tensor, weight: Tensor) -> Tensor | None:
    """torch.addmm, or torch.mm without a bias, of an input and a parameter."""
    parameters = [weight] if bias is None or not is_trained(bias) else [weight, bias]
    if not _are_parameters(parameters) or not can_defer(*parameters):
        return None
    if x.dim() != 2 or x.numel() == 0 or weight.is_complex() or type(x) is not Tensor:
        return None
    dtype = autocast_dtype(x)
    if dtype is not None:
        x = x.to(dtype)
    elif x.dtype != weight.dtype:
        return None
    return _Addmm.call(defer, bias, x, weight, dtype)  # type: ignore[no-any-return]


class _Addmm(DeferredFunction):
    @staticmethod
    def forward(
        ctx: Any, defer: Defer, bias: Tensor | None, x: Tensor, weight: Tensor, dtype: torch.dtype | None
    ) -> Tensor:
        deferred_bias = bias if is_trained(bias) else None
        ctx.defer, ctx.weight, ctx.bias = defer, weight, deferred_bias
        ctx.bias_form = None if bias is None else (bias.shape, bias.dtype)
        cast = cast_parameter(weight, dtype)
        ctx.save_for_backward(x, cast)
        if bias is None:
            return torch.mm(x, cast)  # type: ignore[arg-type]
        return torch.addmm(bias if dtype is None else bias.detach().to(dtype), x, cast)  # type: ignore[arg-type]

    @staticmethod
    @without_function_modes
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:
        x, weight = saved
        ctx.defer(*_addmm_grads(grad, x, weight, ctx.weight, ctx.bias))
        bias_grad = None
        if ctx.needs_input_grad[1] and ctx.bias is None:
            shape, dtype = ctx.bias_form
            bias_grad = grad.sum_to_size(shape).to(dtype)
        x_grad = linear_input_grad(grad, x, weight.t()) if ctx.needs_input_grad[2] else None
        return None, bias_grad, x_grad, None, None


def _addmm_grads(grad: Tensor, x: Tensor, cast: Tensor, weight: Tensor, bias: Tensor | None) -> DeferredGrads:
    def compute() -> list[Tensor]:
        grads = [linear_weight_grad(grad, x, cast.t()).t()]
        return grads if bias is None else [*grads, grad.sum_to_size(bias.shape)]

    return [weight] if bias is None else [weight, bias], compute


def product(defer: Defer, call: Callable[..., Tensor], args: Sequence[Any], named: Mapping[str, Any]) -> Tensor | None:
    """Any torch function of parameters and other tensors that returns one new tensor."""
    if named.get("out") is not None or _top_saved_tensors_hooks(True) is not None:
        return None
    arguments = _Arguments(args, named)
    parameters = [tensor for tensor in arguments.tensors if isinstance(tensor, nn.Parameter) and tensor.requires_grad]
    if not parameters or not _are_parameters(parameters) or not can_defer(*parameters):
        return None
    if any(type(tensor) is not Tensor and type(tensor) is not nn.Parameter for tensor in arguments.tensors):
        return None
    if torch.is_autocast_enabled(parameters[0].device.type):
        return None
    inputs = [tensor for tensor in arguments.tensors if not isinstance(tensor, nn.Parameter) and tensor.requires_grad]
    if len({id(tensor) for tensor in (*parameters, *inputs)}) < len(parameters) + len(inputs):
        return None  # autograd adds the gradients of each place separately, which gives other bits
    return _Product.call(defer, call, arguments, parameters, _ANCHOR, *inputs)  # type: ignore[no-any-return]


def _are_parameters(tensors: Sequence[Tensor]) -> bool:
    # A detached input of a layer that recomputes itself is a leaf too, and its gradient cannot wait.
    return all(type(tensor) is nn.Parameter for tensor in tensors)


_ANCHOR = torch.empty(0, requires_grad=True)
"""Makes autograd track a product without other inputs. It never gets a gradient."""


class _Arguments:
    """The arguments of a call, in which input tensors can be replaced."""

    def __init__(self, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        self._args, self._named = args, named
        self.tensors: list[Tensor] = []
        self._map(self.tensors.append)

    def replace(self, change: Callable[[Tensor], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments with changed tensors."""
        return self._map(change)

    def _map(self, change: Callable[[Tensor], Any]) -> tuple[list[Any], dict[str, Any]]:
        def each(value: Any) -> Any:
            if isinstance(value, Tensor):
                return change(value)
            return [each(item) for item in value] if isinstance(value, list | tuple) else value

        return [each(value) for value in self._args], {name: each(value) for name, value in self._named.items()}


class _Product(DeferredFunction):
    @staticmethod
    def forward(
        ctx: Any,
        defer: Defer,
        call: Callable[..., Tensor],
        arguments: _Arguments,
        parameters: Sequence[Tensor],
        anchor: Tensor,  # noqa: ARG004
        *inputs: Tensor,
    ) -> Tensor:
        leaves = {id(tensor): tensor.detach().requires_grad_() for tensor in inputs}
        with torch.enable_grad():
            args, named = arguments.replace(lambda tensor: leaves.get(id(tensor), tensor))
            out = call(*args, **named)
        ctx.defer, ctx.parameters, ctx.edge = defer, parameters, get_gradient_edge(out)
        ctx.leaves = list(leaves.values())
        return out.detach()

    @staticmethod
    @without_function_modes
    def backward(ctx: Any, saved: Sequence[Tensor], grad: Tensor) -> Any:  # noqa: ARG004
        edge, parameters = ctx.edge, ctx.parameters
        grads: Sequence[Tensor] = ()
        if ctx.leaves:
            grads = torch.autograd.grad(edge, ctx.leaves, grad, retain_graph=True)
        ctx.defer(parameters, lambda: torch.autograd.grad(edge, parameters, grad))
        return None, None, None, None, None, *grads


def _mm(defer: Defer, input: Tensor, mat2: Tensor) -> Tensor | None:  # noqa: A002
    return addmm(defer, None, input, mat2)


def _addmm(
    defer: Defer,
    input: Tensor,  # noqa: A002
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor | None:
    return addmm(defer, input, mat1, mat2) if alpha == beta == 1 else None


_OF_MATRICES: Mapping[Any, Callable[..., Tensor | None]] = {
    torch.mm: _mm,
    Tensor.mm: _mm,
    torch.addmm: _addmm,
    Tensor.addmm: _addmm,
}


_OF_TWO = frozenset((torch.mm, Tensor.mm, torch.matmul, Tensor.matmul, Tensor.__matmul__))
"""Functions of a matrix on the right."""


def _transposed(defer: Defer, *args: Any, **named: Any) -> Tensor | None:
    """A product of an input and a transposed parameter: F.linear computes the same by the same kernels."""
    if len(args) != 2 or named or not all(isinstance(item, Tensor) for item in args):
        return None
    x, matrix = args
    parameter = matrix._base
    if type(parameter) is not nn.Parameter or not matrix.requires_grad or matrix.dim() != 2 or x.dim() < 2:
        return None
    same = matrix.shape == parameter.shape[::-1] and matrix.stride() == parameter.stride()[::-1]
    if not same or not parameter.is_contiguous() or matrix.data_ptr() != parameter.data_ptr():
        return None
    return linear(defer, x, parameter, None)


def _deferred(call: Any) -> Callable[..., Tensor | None]:
    matrices = _OF_MATRICES.get(call)

    def deferred(defer: Defer, *args: Any, **named: Any) -> Tensor | None:
        out = _transposed(defer, *args, **named) if call in _OF_TWO else None
        if out is None and matrices is not None and "out" not in named:
            out = matrices(defer, *args, **named)
        return product(defer, call, args, named) if out is None else out

    return deferred


PRODUCTS: Mapping[Any, Callable[..., Tensor | None]] = {
    call: _deferred(call)
    for call in (
        *_OF_MATRICES,
        torch.matmul,
        Tensor.matmul,
        Tensor.__matmul__,
        Tensor.__rmatmul__,
        torch.bmm,
        Tensor.bmm,
        torch.baddbmm,
        Tensor.baddbmm,
        torch.addbmm,
        Tensor.addbmm,
        torch.einsum,
        torch.tensordot,
        F.bilinear,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
    )
}
"""Torch functions, and how each runs with a deferred weight gradient."""
