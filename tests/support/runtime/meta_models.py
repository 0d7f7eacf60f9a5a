"""Models created on the meta device, and their training."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from penstock.errors import PenstockError
from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.state.meta_device import materialize
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime import own_forward
from tests.support.runtime.models import KINDS, Embed
from tests.support.runtime.user_models import mean_square

SEED = 21


class Rotating(nn.Module):
    """Has buffers that are in no state: one that is filled, and one that is made anew."""

    phase: Tensor
    turn: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("phase", torch.empty(width), persistent=False)
        self.register_buffer("turn", torch.empty(width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.phase.uniform_(0, 1)
        self.turn = torch.arange(len(self.phase), dtype=torch.float32) / 10

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.cos(self.turn * self.phase)


def rotating() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), Rotating(4), nn.BatchNorm1d(4), nn.Linear(4, 2))


class Placed(own_forward.Model):
    """Asks late for the device of its inputs, which later blocks do not have."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places
        for layer in self.layers:
            x = layer(x, 0.5)
        found: Tensor = self.head(self.norm(x) + torch.arange(8, device=ids.device) / 10)
        return found


def own_batch(step: int) -> tuple[Tensor, Tensor]:
    return own_forward.batch(step)


def small_batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(7, 3, generator=generator), torch.randn(7, generator=generator)


def fill(module: nn.Module) -> None:
    """What these models have without a reset_parameters."""
    if isinstance(module, Embed | own_forward.Model):
        nn.init.normal_(module.places, std=0.1)


MODELS: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[int], tuple[Any, Any]], bool]] = {
    **{name: (kind.make, kind.loss, partial(kind.batch, num_rows=7), False) for name, kind in KINDS.items()},
    "own": (own_forward.Model, own_forward.loss, own_batch, True),
    "placed": (Placed, own_forward.loss, own_batch, True),
    "rotating": (rotating, mean_square, small_batch, False),
}


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return MODELS[name][0]()


def train(name: str, plan: Plan | None, *options: Any) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Three steps; in a single process if there is no plan."""
    _, loss, batch, needs_inputs = MODELS[name]
    model = on_meta(name)
    inputs = batch(0)[0] if needs_inputs else None
    # What torch's own generator has drawn so far must not matter.
    torch.manual_seed(torch.seed())
    if plan is None:
        materialize(model, seed=SEED, init=fill)
        blocks, pipe = find_blocks(model, None, inputs), None
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        pipe = Pipeline(model, plan, loss, inputs=inputs, seed=SEED, init=fill, timeout_s=60)
        optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-3)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        if pipe is None:
            losses.append(reference_step(model, blocks, 3, loss, *batch(step), step=step, seed=SEED))
        else:
            losses.append(pipe.step(*batch(step)))
        optimizer.step()
    if pipe is None:
        return losses, dict(model.state_dict())
    pipe.close()
    return losses, {**{name: item.detach() for name, item in pipe.named_parameters().items()}, **pipe.named_buffers()}


def held(name: str, plan: Plan) -> tuple[int, int]:
    """How many numbers of parameters are real on this rank, and how many there are."""
    model = on_meta(name)
    pipe = Pipeline(model, plan, MODELS[name][1], init=fill)
    pipe.close()
    items = list(model.parameters())
    return sum(item.numel() for item in items if not item.is_meta), sum(item.numel() for item in items)


class Meddling(nn.Linear):
    """Fills its neighbour as well."""

    def __init__(self, neighbour: nn.Linear) -> None:
        self.others = [neighbour]
        super().__init__(3, 3)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.others[0].weight)


def meddling() -> nn.Sequential:
    first = nn.Linear(3, 3)
    return nn.Sequential(first, nn.Tanh(), Meddling(first))


def try_pipeline(name: str, plan: Plan) -> str:
    """What making a pipeline says."""
    with torch.device("meta"):
        model = meddling() if name == "meddling" else MODELS[name][0]()
    try:
        Pipeline(model, plan, mean_square, timeout_s=30).close()
    except PenstockError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def save_and_start_from(name: str, plan: Plan, folder: str, *, save: bool) -> tuple[list[Tensor], str]:
    """Two steps and a checkpoint, or two more from there, from a model without values."""
    _, loss, batch, _ = MODELS[name]
    pipe = Pipeline(on_meta(name), plan, loss, seed=SEED, init=fill if save else "checkpoint", timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-3)
    told = ""
    if not save:
        try:
            pipe.step(*batch(2))
        except ValueError as error:
            told = str(error)
        pipe.load(folder)
    losses = []
    for step in range(2) if save else range(2, 4):
        optimizer.zero_grad()
        losses.append(pipe.step(*batch(step)))
        optimizer.step()
    if save:
        pipe.save(folder)
    pipe.close()
    return losses, told


def save_first(name: str, plan: Plan, folder: str) -> tuple[list[Tensor], str]:
    return save_and_start_from(name, plan, folder, save=True)


def resume(name: str, plan: Plan, folder: str) -> tuple[list[Tensor], str]:
    return save_and_start_from(name, plan, folder, save=False)
