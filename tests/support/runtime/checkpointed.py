"""Models that recompute parts of themselves in the backward (`torch.utils.checkpoint`), with dropout everywhere."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.plain_reference import reference_step

WIDTH = 6
Checkpoint = Callable[..., Tensor]
"""Calls a function on its arguments, with or without keeping its tensors."""


def call(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """Keep everything."""
    return function(*args)


CHECKPOINTS: dict[str, Checkpoint] = {
    "reentrant": partial(checkpoint, use_reentrant=True),
    "not reentrant": partial(checkpoint, use_reentrant=False),
}


class Part(nn.Module):
    noise = 0.1
    """Amplitude of random numbers that are not drawn row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(torch.tanh(self.inner(x)), 0.3) + self.noise * torch.rand_like(x)
        return F.dropout(self.norm(x), 0.2) + x


class Whole(nn.Module):
    """A layer that recomputes itself, with draws before and after."""

    def __init__(self, keep: Checkpoint) -> None:
        super().__init__()
        self.part, self.keep = Part(), keep

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.keep(self.part, F.dropout(x, 0.1)), 0.1)


class Several(nn.Module):
    """A layer with several parts that recompute themselves."""

    def __init__(self, keep: Checkpoint) -> None:
        super().__init__()
        self.parts, self.keep = nn.ModuleList(Part() for _ in range(3)), keep

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = x + F.dropout(self.keep(part, x), 0.2)
        return x


class Nested(nn.Module):
    """A part that recomputes itself, inside another one."""

    def __init__(self, keep: Checkpoint) -> None:
        super().__init__()
        self.outer, self.inner, self.keep = Part(), Whole(keep), keep

    def forward(self, x: Tensor) -> Tensor:
        return self.keep(lambda y: F.dropout(self.inner(self.outer(y)), 0.2), x)


class Model(nn.Module):
    """A model with a forward of its own, which may recompute the blocks themselves."""

    def __init__(self, layer: Callable[[Checkpoint], nn.Module], inside: Checkpoint, around: Checkpoint) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.layers, self.around = nn.ModuleList(layer(inside) for _ in range(3)), around

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = self.around(layer, x) * 0.5
        out: Tensor = self.head(F.dropout(x, 0.1))
        return out


LAYERS: dict[str, Callable[[Checkpoint], nn.Module]] = {"whole": Whole, "several": Several, "nested": Nested}
AROUND = "around"


def make(kind: str, keep: Checkpoint, noise: float = 0.1) -> Model:
    """A model of a kind: one of LAYERS, or AROUND for a forward that recomputes its blocks."""
    torch.manual_seed(0)
    model = Model(Whole, call, keep) if kind == AROUND else Model(LAYERS[kind], keep, call)
    for module in model.modules():
        if isinstance(module, Part):
            module.noise = noise
    return model


def sequential(keep: Checkpoint) -> nn.Module:
    """A model with a block that recomputes its children in two runs."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.Sequential(Part(), Part(), Part())

        def forward(self, x: Tensor) -> Tensor:
            return self.parts[2](keep(lambda y: self.parts[1](self.parts[0](y)), x))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Chain(), nn.Linear(WIDTH, 2))


def loss(out: Tensor, targets: Tensor) -> Tensor:
    return (out - targets).square().mean()


def batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, WIDTH, generator=generator), torch.randn(8, 2, generator=generator)


def train(kind: str, checkpoint_name: str, plan: Plan, noise: float) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Train one rank."""
    pipe = Pipeline(make(kind, CHECKPOINTS[checkpoint_name], noise), plan, loss, inputs=batch(0)[0], timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        losses.append(pipe.step(*batch(step)))
        optimizer.step()
    pipe.close()
    return losses, {name: item.detach() for name, item in pipe.named_parameters().items()}


def train_single_process(
    kind: str, keep: Checkpoint, num_microbatches: int, noise: float = 0.1
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The same in a single process."""
    model = make(kind, keep, noise)
    blocks = find_blocks(model, None, batch(0)[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        losses.append(reference_step(model, blocks, num_microbatches, loss, *batch(step), step=step))
        optimizer.step()
    return losses, {name: item.detach() for name, item in model.named_parameters()}
