"""What a stage's forward calls, seen on the way: dropout draws from our streams, weight gradients are put off,
and batch norm is over the rows of all ranks that share the stage.

Only calls through torch's own functions are seen, which is how all modules of torch.nn make them. Dropout inside
`scaled_dot_product_attention` is done by its plain formula, as the fused kernels draw their own numbers. Dropout inside
`torch.lstm` and its like, and in compiled blocks, is not by row: it reads torch's generator (see `streams.py`).
"""

import math
import types
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from penstock.errors import InputError
from penstock.runtime.rng import Streams
from penstock.runtime.stage import sync_batch_norm, wgrad_functions
from penstock.runtime.stage.sync_batch_norm import AddUp
from penstock.runtime.stage.wgrad_functions import Defer


class Interception(TorchFunctionMode):
    """While it is entered, calls go to `streams`, weight gradients to `defer` and sums over rows to `add_up`, if given.

    In a backward there are no streams. What calls these functions then is a block that recomputes itself, with
    `torch.utils.checkpoint`: its weight gradients are put off as in the forward, but dropout would draw other numbers.
    """

    def __init__(self, streams: Streams | None, defer: Defer | None, add_up: AddUp | None = None) -> None:
        super().__init__()
        self._add_up = add_up
        self._streams = streams
        self._defer = defer
        self.has_put_off = False
        """Whether weight gradients were: those of layers that nobody else listens to."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called for each torch function, with this mode switched off."""
        named = kwargs or {}
        if torch.compiler.is_compiling():
            # Compiled blocks are kernels of their own: nothing in them is put off, and dropout reads torch's generator.
            return func(*args, **named)
        if self._defer is not None and func in _DEFERRED:
            found = _DEFERRED[func](self._defer, *args, **named)
            if found is not None:
                self.has_put_off = True
                return found
        elif func in _RANDOM:
            streams = self._streams or _NoStreams()
            # Attention without dropout is common, and draws nothing.
            streams.may_draw |= func is not F.scaled_dot_product_attention
            return _RANDOM[func](streams, *args, **named)
        elif self._add_up is not None and func in _OVER_ROWS:
            return _OVER_ROWS[func](self._add_up, *args, **named)
        elif func is F.multi_head_attention_forward:
            with self:
                return _opened(func)(*args, **named)
        return func(*args, **named)


class _NoStreams:
    may_draw = True

    def dropout(self, *_: object, **__: object) -> Tensor:
        raise InputError(
            "a block with dropout recomputes itself in the backward (torch.utils.checkpoint)",
            hint="Leave that to the plan, which can recompute stages, or put dropout outside of what is recomputed.",
        )

    alpha_dropout = dropout


@cache
def _opened(func: types.FunctionType) -> Callable[..., Any]:
    """The function without its question whether somebody watches, so that its own calls can be watched instead."""

    def nobody(*_: object) -> bool:
        return False

    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    found = types.FunctionType(
        func.__code__,
        {**func.__globals__, **dict.fromkeys(names, nobody)},
        func.__name__,
        func.__defaults__,
        func.__closure__,
    )
    found.__kwdefaults__ = func.__kwdefaults__
    return found


def _dropout(
    streams: Streams | _NoStreams,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    by_channel: bool = False,
) -> Tensor:
    if not training or p == 0.0:
        return input
    return streams.dropout(input, p, in_place=inplace, by_channel=by_channel)


def _dropout1d(
    streams: Streams | _NoStreams,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if input.dim() == 2:
        # Channels and positions of one row.
        return _dropout1d(streams, input.unsqueeze(0), p, training, inplace).squeeze(0)
    return _dropout(streams, input, p, training, inplace, by_channel=True)


def _alpha_dropout(
    streams: Streams | _NoStreams,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    by_channel: bool = False,
) -> Tensor:
    if not training or p == 0.0:
        return input
    return streams.alpha_dropout(input, p, in_place=inplace, by_channel=by_channel)


def _plain_dropout(streams: Streams | _NoStreams, input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    return _dropout(streams, input, p, train)


def _attention(
    streams: Streams | _NoStreams,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p == 0.0:
        form = {"scale": scale, "enable_gqa": enable_gqa}
        return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **form)  # type: ignore[arg-type]
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    streams.may_draw = True
    return streams.dropout(scores.softmax(-1), dropout_p, in_place=False) @ value


def _batch_norm(
    add_up: AddUp,
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
    return sync_batch_norm.batch_norm(add_up, input, running_mean, running_var, weight, bias, momentum, eps)


def _plain_batch_norm(
    add_up: AddUp,
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
    return _batch_norm(add_up, input, running_mean, running_var, weight, bias, training, momentum, eps)


def _conv(call: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    def found(
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

    return found


def _linear(defer: Defer, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:  # noqa: A002
    return wgrad_functions.linear(defer, input, weight, bias)


def _embedding(defer: Defer, input: Tensor, weight: Tensor, *args: Any, **named: Any) -> Tensor | None:  # noqa: A002
    return wgrad_functions.embedding(defer, input, weight, *args, **named)


_RANDOM: Mapping[Any, Callable[..., Tensor]] = {
    F.dropout: _dropout,
    torch.dropout: _plain_dropout,
    F.dropout1d: _dropout1d,
    F.dropout2d: partial(_dropout, by_channel=True),
    F.dropout3d: partial(_dropout, by_channel=True),
    F.alpha_dropout: _alpha_dropout,
    F.feature_alpha_dropout: partial(_alpha_dropout, by_channel=True),
    F.scaled_dot_product_attention: _attention,
}

_OVER_ROWS: Mapping[Any, Callable[..., Tensor]] = {F.batch_norm: _batch_norm, torch.batch_norm: _plain_batch_norm}

_DEFERRED: Mapping[Any, Callable[..., Tensor | None]] = {
    F.linear: _linear,
    F.conv1d: _conv(torch.conv1d),
    F.conv2d: _conv(torch.conv2d),
    F.conv3d: _conv(torch.conv3d),
    F.embedding: _embedding,
}
