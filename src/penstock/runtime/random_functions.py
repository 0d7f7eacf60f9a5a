"""Row-wise replacements of torch's random functions, drawn from a `RowRng`.

A `TorchFunctionMode` sees every call of a torch function, which is how all modules of torch.nn draw dropout masks.
Dropout inside `scaled_dot_product_attention` uses the plain formula, because the fused kernels draw their own numbers.
Dropout inside `torch.lstm` and similar functions, and in compiled modules, is not drawn by row: it reads torch's
generator, which `RowRng` seeds for every layer.
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

from penstock.runtime.rng import RowRng


class RandomFunctionMode(TorchFunctionMode):
    """Draws dropout masks from `rng` while it is entered: in a forward, and in its backward, which may recompute parts.

    A module that recomputes itself (`torch.utils.checkpoint`) draws the numbers of its forward.
    """

    def __init__(self, rng: RowRng) -> None:
        super().__init__()
        self._rng = rng

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called for each torch function, with this mode disabled."""
        named = kwargs or {}
        if torch.compiler.is_compiling():
            return func(*args, **named)
        if func in RANDOM_FUNCTIONS:
            return call_random(func, self._rng, *args, **named)
        if func in COMPOSITE:
            with self:
                return without_override_check(func)(*args, **named)
        return func(*args, **named)


def call_random(func: Any, rng: RowRng, *args: Any, **named: Any) -> Tensor:
    """Call the row-wise replacement of one of RANDOM_FUNCTIONS."""
    # Attention without dropout is common and draws nothing.
    rng.may_draw |= func is not F.scaled_dot_product_attention
    return RANDOM_FUNCTIONS[func](rng, *args, **named)


@cache
def without_override_check(func: types.FunctionType) -> Callable[..., Any]:
    """A copy of a torch function that does not dispatch to function modes itself, so that its inner calls do."""

    def never(*_: object) -> bool:
        return False

    names = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    copy = types.FunctionType(
        func.__code__,
        {**func.__globals__, **dict.fromkeys(names, never)},
        func.__name__,
        func.__defaults__,
        func.__closure__,
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _dropout(
    rng: RowRng,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    by_channel: bool = False,
) -> Tensor:
    if not training or p == 0.0:
        return input
    return rng.dropout(input, p, in_place=inplace, by_channel=by_channel)


def _dropout1d(
    rng: RowRng,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if input.dim() == 2:
        # Channels and positions of a single row.
        return _dropout1d(rng, input.unsqueeze(0), p, training, inplace).squeeze(0)
    return _dropout(rng, input, p, training, inplace, by_channel=True)


def _alpha_dropout(
    rng: RowRng,
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    by_channel: bool = False,
) -> Tensor:
    if not training or p == 0.0:
        return input
    return rng.alpha_dropout(input, p, in_place=inplace, by_channel=by_channel)


def _aten_dropout(rng: RowRng, input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002
    return _dropout(rng, input, p, train)


def _attention(
    rng: RowRng,
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
        options = {"scale": scale, "enable_gqa": enable_gqa}
        return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **options)  # type: ignore[arg-type]
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
    rng.may_draw = True
    return rng.dropout(scores.softmax(-1), dropout_p, in_place=False) @ value


RANDOM_FUNCTIONS: Mapping[Any, Callable[..., Tensor]] = {
    F.dropout: _dropout,
    torch.dropout: _aten_dropout,
    F.dropout1d: _dropout1d,
    F.dropout2d: partial(_dropout, by_channel=True),
    F.dropout3d: partial(_dropout, by_channel=True),
    F.alpha_dropout: _alpha_dropout,
    F.feature_alpha_dropout: partial(_alpha_dropout, by_channel=True),
    F.scaled_dot_product_attention: _attention,
}
"""torch's random functions, and their row-wise replacements."""

COMPOSITE = (F.multi_head_attention_forward, Tensor.backward, torch.autograd.backward, torch.autograd.grad)
"""Functions whose inner calls a mode must see: attention calls dropout, and a backward may recompute a forward."""
