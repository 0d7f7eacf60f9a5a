"""Unusual blocks, trained by a plan or in a single process, as functions that ranks can run."""

import torch
from torch import Tensor, nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.stages import Hidden
from tests.support.runtime.user_models import mean_square


class Both(nn.Module):
    """Returns its input beside its output; the backward of the output does not need the input."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.tanh(x + 1)


class Clip(nn.Module):
    """Changes its input in place."""

    def forward(self, payload: tuple[Tensor, Tensor]) -> Tensor:
        return payload[0].clamp_(min=0.1) + payload[1]


class Branch(nn.Module):
    """Chooses one of two layers by the values of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.one(x) if float(x.detach()[0, 0]) > float(x.detach()[-1, -1]) else self.other(x)
        return out


class Keep(nn.Module):
    """Its backward cannot be replayed: its function keeps a tensor as an attribute of ctx."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Hidden.apply(x, 0.5)  # type: ignore[no-untyped-call]
        return out


Result = tuple[list[Tensor], dict[str, Tensor], dict[int, str]]
"""Losses, gradients and mechanisms."""


def odd_blocks(plan: Plan | None) -> Result:
    """Blocks that return their input, change it in place, and branch."""
    torch.manual_seed(0)
    return _gradients(nn.Sequential(nn.Linear(3, 3), Both(), Clip(), Branch(), nn.Linear(3, 2)), plan)


def recomputed_norms(plan: Plan | None) -> Result:
    """Batch norm in a stage that must be recomputed."""
    torch.manual_seed(0)
    return _gradients(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), Keep(), nn.Linear(3, 2)).double(), plan)


def _gradients(model: nn.Sequential, plan: Plan | None) -> Result:
    pipe = None if plan is None else Pipeline(model, plan, mean_square, timeout_s=30)
    blocks = find_blocks(model) if pipe is None else ()
    losses = []
    for step in range(3):
        kind = next(model.parameters()).dtype
        x, y = torch.randn(6, 3, dtype=kind), torch.randn(6, dtype=kind)
        if pipe is None:
            losses.append(reference_step(model, blocks, 3, mean_square, x, y, step=step))
        else:
            losses.append(pipe.step(x, y))
    if pipe is None:
        return losses, {name: item.grad for name, item in model.named_parameters() if item.grad is not None}, {}
    pipe.close()
    named = pipe.named_parameters()
    return losses, {name: item.grad for name, item in named.items() if item.grad is not None}, pipe.mechanisms()
