"""The torch functions that a stage's forward calls, replaced where the stage needs other behaviour.

Dropout draws row by row (`random_functions.py`), weight gradients are deferred (`wgrad_functions.py`,
`wgrad_products.py`), and batch norm covers the rows of all replicas (`sync_batch_norm.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from penstock.runtime.random_functions import COMPOSITE, RANDOM_FUNCTIONS, call_random, without_override_check
from penstock.runtime.rng import RowRng
from penstock.runtime.stage import sync_batch_norm, wgrad_functions
from penstock.runtime.stage.sync_batch_norm import AllReduce
from penstock.runtime.stage.wgrad_functions import Defer
from penstock.runtime.stage.wgrad_products import PRODUCTS


class StageFunctionMode(TorchFunctionMode):
    """While it is entered, dropout draws from `rng`, weight gradients go to `defer` and batch norm uses `all_reduce`.

    In a backward, torch functions are called by layers that recompute themselves (`torch.utils.checkpoint`). Their
    weight gradients are deferred as in the forward, and dropout draws the numbers of the forward, whose `rng` it uses.
    """

    def __init__(self, rng: RowRng, defer: Defer | None, all_reduce: AllReduce | None = None) -> None:
        super().__init__()
        self._all_reduce = all_reduce
        self._rng = rng
        self._defer = defer
        self.has_deferred = False
        """Whether weight gradients were deferred that weight-gradient hooks do not cover."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called for each torch function, with this mode disabled."""
        named = kwargs or {}
        if torch.compiler.is_compiling():
            # A compiled module is one kernel: nothing in it is deferred, and its dropout reads torch's generator.
            return func(*args, **named)
        if self._defer is not None and func in _DEFERRED:
            out = _DEFERRED[func](self._defer, *args, **named)
            if out is not None:
                self.has_deferred = True
                return out
        elif func in RANDOM_FUNCTIONS:
            return call_random(func, self._rng, *args, **named)
        elif self._all_reduce is not None and func in _OVER_ROWS:
            return _OVER_ROWS[func](self._all_reduce, *args, **named)
        elif func in COMPOSITE:
            with self:
                return without_override_check(func)(*args, **named)
        return func(*args, **named)


def _batch_norm(
    all_reduce: AllReduce,
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return sync_batch_norm.batch_norm(all_reduce, input, running_mean, running_var, weight, bias, momentum, eps)


def _aten_batch_norm(
    all_reduce: AllReduce,
    input: Tensor,  # noqa: A002
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,  # noqa: ARG001
) -> Tensor:
    return _batch_norm(all_reduce, input, running_mean, running_var, weight, bias, training, momentum, eps)


def _convolution(call: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def deferred(
        defer: Defer,
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor | None:
        return wgrad_functions.convolution(defer, call, input, weight, bias, stride, padding, dilation, groups)

    return deferred


def _linear(defer: Defer, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:  # noqa: A002
    return wgrad_functions.linear(defer, input, weight, bias)


def _embedding(defer: Defer, input: Tensor, weight: Tensor, *args: Any, **named: Any) -> Tensor | None:  # noqa: A002
    return wgrad_functions.embedding(defer, input, weight, *args, **named)


_OVER_ROWS: Mapping[Any, Callable[..., Tensor]] = {F.batch_norm: _batch_norm, torch.batch_norm: _aten_batch_norm}

_DEFERRED: Mapping[Any, Callable[..., Tensor | None]] = {
    F.linear: _linear,
    F.conv1d: _convolution(torch.conv1d),
    F.conv2d: _convolution(torch.conv2d),
    F.conv3d: _convolution(torch.conv3d),
    F.embedding: _embedding,
    **PRODUCTS,
}
