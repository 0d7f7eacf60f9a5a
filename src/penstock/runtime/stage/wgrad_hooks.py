"""Weight-gradient hooks: deferred weight gradients of torch's own layers, without a Python function in the graph.

While the hooks are installed, a linear layer or a convolution runs on its parameters detached from autograd. The
backward then passes through it in torch's own code, for the input alone. A hook receives the gradient of the output
and defers the weight gradients, which need the input too; the input is kept. The functions of `wgrad_functions.py` run
in Python in both directions and take several times as long. They are used where hooks do not suffice: if the input
needs no gradient (then no gradient arrives), under autocast, and if saved-tensor hooks are active, because the input
must be among the saved tensors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import RunError
from penstock.model import is_compiled
from penstock.runtime.stage import wgrad_functions
from penstock.runtime.stage.wgrad_functions import Defer, DeferredGrads

_top_saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks


class _Hookable(NamedTuple):
    """How a hook replaces a layer's forward."""

    keeps_kernels: Callable[[Tensor, Tensor], bool]
    """Whether torch runs the same kernels, for an input and a weight, if the weight requires no gradient."""
    run: Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]
    """Runs the layer on other parameters."""
    defer_grads: Callable[[Any, Tensor, Tensor, Tensor, Tensor | None], DeferredGrads]
    """Gives the deferred gradients from module, gradient of the output, input, weight and bias."""


class _LayerKind(NamedTuple):
    """A kind of layer whose weight gradients can be deferred."""

    by_function: Callable[[Defer, Any, Tensor, Tensor, Tensor | None], Tensor | None]
    """Runs the layer by its function of `wgrad_functions.py`, if that is possible."""
    hookable: _Hookable | None = None


class WeightGradHooks:
    """Replaces `forward` of the layers that hold some parameters, while the hooks are installed."""

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], parameters: Iterable[Tensor]) -> None:
        held = {id(parameter) for parameter in parameters}
        named = list(modules)
        compiled = {id(inner) for _, module in named if is_compiled(module) for inner in module.modules()}
        self._defer: Defer = _not_installed
        self._layers = [
            (module.__dict__, self._forward(kind, module, name))
            for name, module in named
            if (kind := _layer_kind(module)) is not None
            and id(module._parameters.get("weight")) in held
            and id(module) not in compiled
        ]

    @contextmanager
    def install(self, defer: Defer) -> Iterator[None]:
        """Context of a forward: its layers pass their deferred weight gradients to `defer`, in any later backward.

        A layer whose instance already has its own `forward` keeps it.
        """
        self._defer = defer
        changed = [names for names, forward in self._layers if names.setdefault("forward", forward) is forward]
        try:
            yield
        finally:
            self._defer = _not_installed
            for names in changed:
                del names["forward"]

    def _forward(self, kind: _LayerKind, module: nn.Module, name: str) -> Callable[[Tensor], Tensor]:
        plain: Callable[[nn.Module, Tensor], Tensor] = type(module).forward
        held = module._parameters

        def forward(input: Tensor) -> Tensor:  # noqa: A002
            weight, bias = held.get("weight"), held.get("bias")
            if weight is None or not wgrad_functions.can_defer(weight, bias):
                return plain(module, input)
            if kind.hookable is None or not _can_hook(input, weight) or not kind.hookable.keeps_kernels(input, weight):
                deferred = kind.by_function(self._defer, module, input, weight, bias)
                return plain(module, input) if deferred is None else deferred
            _, run, defer_grads = kind.hookable
            out = run(module, input, weight.detach(), None if bias is None else bias.detach())
            defer, version, shape = self._defer, input._version, out.shape
            # An in-place operation on a view replaces the node of the view, but not that of its base.
            node = (out._base if out._is_view() else out).grad_fn  # type: ignore[union-attr]

            def hook(grads: tuple[Tensor | None, ...]) -> None:
                (grad,) = grads
                if input._version != version:
                    raise RunError(
                        f"the input of {name} was changed in place, but its weight gradient needs the original values",
                        hint="torch rejects this in a single process too. Do not change the input of a layer in place.",
                    )
                if grad is not None:
                    defer(*defer_grads(module, grad.view(shape), input, weight, bias))

            node.register_prehook(hook)  # type: ignore[union-attr]
            return out

        return forward


def _not_installed(*_: object) -> None:
    raise AssertionError("a hooked layer ran while the hooks were not installed")


def _can_hook(x: Tensor, weight: Tensor) -> bool:
    return (
        x.requires_grad
        and x.dtype == weight.dtype
        and x.numel() > 0
        and _top_saved_tensors_hooks(True) is None
        and not torch.is_autocast_enabled(x.device.type)
    )


def _linear_keeps_kernels(x: Tensor, _: Tensor) -> bool:
    return x.dim() == 2 or (x.dim() > 2 and x.is_contiguous())


def _run_linear(_: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return nn.functional.linear(x, weight, bias)


def _linear_grads(_: Any, grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> DeferredGrads:
    return wgrad_functions.linear_grads(grad, x, weight, weight, bias)


def _linear_function(defer: Defer, _: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    return wgrad_functions.linear(defer, x, weight, bias)


def _embedding_function(defer: Defer, layer: Any, x: Tensor, weight: Tensor, _: Tensor | None) -> Tensor | None:
    options = layer.padding_idx, layer.max_norm, layer.norm_type, layer.scale_grad_by_freq, layer.sparse
    return wgrad_functions.embedding(defer, x, weight, *options)


def _convolution_keeps_kernels(x: Tensor, weight: Tensor) -> bool:
    return x.dim() == weight.dim()


def _run_convolution(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = layer._conv_forward(x, weight, bias)
    return out


def _convolution_grads(layer: Any, grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> DeferredGrads:
    sizes = [list(value) for value in (layer.stride, layer.padding, layer.dilation)]
    return wgrad_functions.convolution_grads(grad, x, weight, weight, bias, sizes, layer.groups)


def _convolution_function(call: Callable[..., Tensor]) -> Any:
    def by_function(defer: Defer, layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        options = layer.stride, layer.padding, layer.dilation, layer.groups
        return wgrad_functions.convolution(defer, call, x, weight, bias, *options)

    return by_function


def _layer_kind(module: nn.Module) -> _LayerKind | None:
    """The kind of a layer; None for other modules, and for convolutions with another padding than zeros.

    A user's subclass counts only if it runs torch's code on its unmodified parameters.
    """
    if getattr(type(module), "_conv_forward", None) not in _TORCH_CONV_FORWARDS:
        return None
    if getattr(module, "padding_mode", "zeros") != "zeros" or isinstance(getattr(module, "padding", 0), str):
        return None
    return _KINDS.get(type(module).forward)


_CONVOLUTIONS = ((nn.Conv1d, torch.conv1d), (nn.Conv2d, torch.conv2d), (nn.Conv3d, torch.conv3d))
_TORCH_CONV_FORWARDS = (None, *(layer._conv_forward for layer, _ in _CONVOLUTIONS))

_KINDS: Mapping[Any, _LayerKind] = MappingProxyType(
    {
        nn.Embedding.forward: _LayerKind(_embedding_function),
        nn.Linear.forward: _LayerKind(_linear_function, _Hookable(_linear_keeps_kernels, _run_linear, _linear_grads)),
        **{
            layer.forward: _LayerKind(
                _convolution_function(call), _Hookable(_convolution_keeps_kernels, _run_convolution, _convolution_grads)
            )
            for layer, call in _CONVOLUTIONS
        },
    }
)
