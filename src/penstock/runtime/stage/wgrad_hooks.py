"""Weight gradients of torch's own layers, put off without a function of ours in the graph.

While somebody listens, a linear layer or a convolution runs on its parameters cut off from autograd. So the backward
goes through it in torch's own code, for the input alone; the gradient that comes to it is heard on the way, and makes
the weight gradients later, with the input, which is kept. The functions of `wgrad_functions.py`, which run in Python
both ways, take several times as long. They are used where listening is not enough: where what comes in needs no
gradient (then nothing comes back), under autocast, and where hooks take what is saved, as the input must be among it.
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
from penstock.runtime.stage.wgrad_functions import Defer, PutOff

_hooks_of_saved = torch._C._autograd._top_saved_tensors_default_hooks


class _Heard(NamedTuple):
    """How a layer is listened to."""

    can_be: Callable[[Tensor, Tensor], bool]
    """Whether torch runs the same kernels if the weight needs no gradient, for an input and a weight."""
    run: Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]
    """The layer on parameters that are given."""
    put_off: Callable[[Any, Tensor, Tensor, Tensor, Tensor | None], PutOff]
    """From its module, the gradient that came to it, its input and its parameters."""


class _Kind(NamedTuple):
    """A kind of layer."""

    by_function: Callable[[Defer, Any, Tensor, Tensor, Tensor | None], Tensor | None]
    """The layer by the function of `wgrad_functions.py`, if that can be."""
    heard: _Heard | None = None


class Listening:
    """The layers among some modules that hold some parameters. Their `forward` is another while somebody listens."""

    def __init__(self, modules: Iterable[tuple[str, nn.Module]], parameters: Iterable[Tensor]) -> None:
        held = {id(parameter) for parameter in parameters}
        named = list(modules)
        compiled = {id(inner) for _, module in named if is_compiled(module) for inner in module.modules()}
        self._defer: Defer = _nobody
        self._layers = [
            (module.__dict__, self._forward(kind, module, name))
            for name, module in named
            if (kind := _kind_of(module)) is not None
            and id(module._parameters.get("weight")) in held
            and id(module) not in compiled
        ]

    @contextmanager
    def to(self, defer: Defer) -> Iterator[None]:
        """What the layers put off goes there: those that run meanwhile, in whatever backward comes later.

        A layer that has been given another `forward` of its own keeps it.
        """
        self._defer = defer
        changed = [names for names, forward in self._layers if names.setdefault("forward", forward) is forward]
        try:
            yield
        finally:
            self._defer = _nobody
            for names in changed:
                del names["forward"]

    def _forward(self, kind: _Kind, module: nn.Module, name: str) -> Callable[[Tensor], Tensor]:
        plain: Callable[[nn.Module, Tensor], Tensor] = type(module).forward
        held = module._parameters

        def forward(input: Tensor) -> Tensor:  # noqa: A002
            weight, bias = held.get("weight"), held.get("bias")
            if weight is None or not wgrad_functions.can_defer(weight, bias):
                return plain(module, input)
            if kind.heard is None or not _can_hear(input, weight) or not kind.heard.can_be(input, weight):
                found = kind.by_function(self._defer, module, input, weight, bias)
                return plain(module, input) if found is None else found
            _, run, put_off = kind.heard
            out = run(module, input, weight.detach(), None if bias is None else bias.detach())
            defer, version, shape = self._defer, input._version, out.shape
            # What is done in place to a view replaces its own node, but not that of the tensor it is a view of.
            node = (out._base if out._is_view() else out).grad_fn  # type: ignore[union-attr]

            def heard(grads: tuple[Tensor | None, ...]) -> None:
                (grad,) = grads
                if input._version != version:
                    raise RunError(
                        f"the input of {name} was changed in place, but its weight gradient needs it as it was",
                        hint="torch refuses that in one process too. Do not change the input of a layer in place.",
                    )
                if grad is not None:
                    defer(*put_off(module, grad.view(shape), input, weight, bias))

            node.register_prehook(heard)  # type: ignore[union-attr]
            return out

        return forward


def _nobody(*_: object) -> None:
    raise AssertionError("layers are listened to only while somebody does")


def _can_hear(x: Tensor, weight: Tensor) -> bool:
    return (
        x.requires_grad
        and x.dtype == weight.dtype
        and x.numel() > 0
        and _hooks_of_saved(True) is None
        and not torch.is_autocast_enabled(x.device.type)
    )


def _linear_can_be(x: Tensor, _: Tensor) -> bool:
    return x.dim() == 2 or (x.dim() > 2 and x.is_contiguous())


def _run_linear(_: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return nn.functional.linear(x, weight, bias)


def _put_off_linear(_: Any, grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> PutOff:
    return wgrad_functions.linear_job(grad, x, weight, weight, bias)


def _linear_function(defer: Defer, _: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    return wgrad_functions.linear(defer, x, weight, bias)


def _embedding_function(defer: Defer, layer: Any, x: Tensor, weight: Tensor, _: Tensor | None) -> Tensor | None:
    form = layer.padding_idx, layer.max_norm, layer.norm_type, layer.scale_grad_by_freq, layer.sparse
    return wgrad_functions.embedding(defer, x, weight, *form)


def _convolution_can_be(x: Tensor, weight: Tensor) -> bool:
    return x.dim() == weight.dim()


def _run_convolution(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = layer._conv_forward(x, weight, bias)
    return found


def _put_off_convolution(layer: Any, grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> PutOff:
    sizes = [list(value) for value in (layer.stride, layer.padding, layer.dilation)]
    return wgrad_functions.convolution_job(grad, x, weight, weight, bias, sizes, layer.groups)


def _convolution_function(call: Callable[..., Tensor]) -> Any:
    def found(defer: Defer, layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        form = layer.stride, layer.padding, layer.dilation, layer.groups
        return wgrad_functions.convolution(defer, call, x, weight, bias, *form)

    return found


def _kind_of(module: nn.Module) -> _Kind | None:
    """The kind of a layer; none for others, and for convolutions that put something else than zeros around.

    A class of the user's own counts only if it runs torch's code on its parameters as they are.
    """
    if getattr(type(module), "_conv_forward", None) not in _OWN_CONVOLUTIONS:
        return None
    if getattr(module, "padding_mode", "zeros") != "zeros" or isinstance(getattr(module, "padding", 0), str):
        return None
    return _KINDS.get(type(module).forward)


_CONVOLUTIONS = ((nn.Conv1d, torch.conv1d), (nn.Conv2d, torch.conv2d), (nn.Conv3d, torch.conv3d))
_OWN_CONVOLUTIONS = (None, *(layer._conv_forward for layer, _ in _CONVOLUTIONS))

_KINDS: Mapping[Any, _Kind] = MappingProxyType(
    {
        nn.Embedding.forward: _Kind(_embedding_function),
        nn.Linear.forward: _Kind(_linear_function, _Heard(_linear_can_be, _run_linear, _put_off_linear)),
        **{
            layer.forward: _Kind(
                _convolution_function(call), _Heard(_convolution_can_be, _run_convolution, _put_off_convolution)
            )
            for layer, call in _CONVOLUTIONS
        },
    }
)
