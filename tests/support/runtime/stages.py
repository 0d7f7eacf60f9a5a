"""Stages of many kinds, to test which backwards can be remote. Inputs and outputs are (4, 6) unless noted."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint


class Call(nn.Module):
    """A function as a block, with its own layers."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.layers)


class Attention(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.norm, self.all, self.join = nn.LayerNorm(6), nn.Linear(6, 18), nn.Linear(6, 6)
        self.drop, self.p = nn.Dropout(p), p

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.all(self.norm(x)).view(*x.shape[:2], 3, 2, 3).permute(2, 0, 3, 1, 4).unbind(0)
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True)
        made: Tensor = x + self.drop(self.join(found.transpose(1, 2).reshape(x.shape)))
        return made


class Square(torch.autograd.Function):
    """Saves its tensor by save_for_backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * ctx.factor * x * grad, None


class Hidden(Square):
    """Keeps its tensor as an attribute of ctx."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.mine, ctx.factor = x.detach().clone(), factor
        return factor * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return 2 * ctx.factor * ctx.mine * grad, None


class Box:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Boxed(Square):
    """Keeps its tensor inside an object on ctx: only wrong gradients reveal it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.box, ctx.factor = Box(x.detach().clone()), factor
        return factor * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return 2 * ctx.factor * ctx.box.tensor * grad, None


class Tied(nn.Module):
    """One weight used three times, once transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(F.linear(F.linear(x, self.weight), self.weight.t())), self.weight)


class Masked(nn.Module):
    """Saves a buffer that does not change and one that does."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("mask", torch.ones(6, 6).tril())
        self.register_buffer("count", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        found: Tensor = self.layer(x) @ self.mask * self.count
        return found


def lstm() -> nn.Sequential:
    return nn.Sequential(nn.LSTM(6, 6, batch_first=True), Call(lambda x: x[0]))


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 3, 3, padding=1).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        nn.MaxPool2d(2),
    )


def views(x: Tensor, layer: nn.Module) -> Any:
    y = layer(x)
    first, second = y.chunk(2, 1)
    return {"part": first * second, "view": y[:, 1:4], "turned": y.t(), "same": y, "again": y}


def pick(x: Tensor, one: nn.Module, other: nn.Module) -> Tensor:
    found: Tensor = one(x) if float(x.detach()[0, 0]) > float(x.detach()[-1, -1]) else other(x)
    return found


def scale(x: Tensor) -> Tensor:
    return x * float(x.detach().abs().max())


def only_when_large(x: Tensor) -> Tensor:
    return x * 2 if float(x.detach().abs().max()) < 50 else x * 3


def save_and_change(x: Tensor) -> Tensor:
    y = torch.tanh(x)
    z = y * 2
    with torch.no_grad():
        y.detach().add_(0)
    return z


FLAT, IMAGE, SEQUENCE = (4, 6), (4, 3, 8, 8), (4, 5, 6)

TRANSFERABLE: dict[str, tuple[Callable[[], nn.Sequential], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6), nn.GELU()), FLAT),
    "attention": (lambda: nn.Sequential(Attention(0.0)), SEQUENCE),
    "attention with dropout": (lambda: nn.Sequential(Attention(0.3), Attention(0.2)), SEQUENCE),
    "torch's encoder": (lambda: nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)), SEQUENCE),
    "convolutions": (convolutions, IMAGE),
    "residual": (lambda: nn.Sequential(Call(lambda x, a: x + F.relu_(a(x)), nn.Linear(6, 6))), FLAT),
    "lstm": (lstm, SEQUENCE),
    "tied": (lambda: nn.Sequential(Tied()), FLAT),
    "begins in place": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 6)), FLAT),
    "nothing saved": (lambda: nn.Sequential(nn.Flatten(), nn.Identity()), SEQUENCE),
    "views": (lambda: nn.Sequential(Call(views, nn.Linear(6, 6))), FLAT),
    "a function that saves": (lambda: nn.Sequential(Call(lambda x: Square.apply(x, 0.5))), FLAT),  # type: ignore[no-untyped-call]
    "weights that are computed": (lambda: nn.Sequential(weight_norm(nn.Linear(6, 6))), FLAT),
    "sorting": (lambda: nn.Sequential(Call(lambda x: x.sort(1)[0].cumprod(1)[:, [0, 2, 2]])), FLAT),
    "expanded": (lambda: nn.Sequential(Call(lambda x: x[:, :1].expand(4, 6) * x.mean(0) * x)), FLAT),
    "buffers": (lambda: nn.Sequential(Masked()), FLAT),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(1, 3), nn.Conv2d(3, 3, 1)), IMAGE),
    "a frozen layer": (lambda: nn.Sequential(nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 6)), FLAT),
}

RECOMPUTED: dict[str, tuple[Callable[[], nn.Sequential], str]] = {
    "tensors on ctx": (
        lambda: nn.Sequential(Call(lambda x: Hidden.apply(x, 0.5))),  # type: ignore[no-untyped-call]
        "Hidden keeps tensors as attributes",
    ),
    "tensors in an object on ctx": (lambda: nn.Sequential(Call(lambda x: Boxed.apply(x, 0.5))), "differ when replayed"),  # type: ignore[no-untyped-call]
    "a branch": (lambda: nn.Sequential(Call(pick, nn.Linear(6, 6), nn.Linear(6, 6))), "depends on the values"),
    "a number read": (lambda: nn.Sequential(Call(scale)), "depends on the values"),
    "checkpoint": (
        lambda: nn.Sequential(Call(lambda x, a: checkpoint(a, x, use_reentrant=False), nn.Linear(6, 6))),
        "its own saved-tensor hooks",
    ),
    "reentrant": (
        lambda: nn.Sequential(Call(lambda x, a: checkpoint(a, x, use_reentrant=True), nn.Linear(6, 6))),
        "",
    ),
}
