"""Blocks that do odd things, trained by a plan or in one process, as functions that ranks can run."""

import torch
from torch import Tensor, nn

from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.reference import reference_step
from tests.support.runtime.stages import Hidden
from tests.support.runtime.user_models import mean_square


class Both(nn.Module):
    """Hands on what came in beside what it computes; what it computes does not need it for its backward."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.tanh(x + 1)


class Clip(nn.Module):
    """Changes in place what it was given."""

    def forward(self, carry: tuple[Tensor, Tensor]) -> Tensor:
        return carry[0].clamp_(min=0.1) + carry[1]


class Branch(nn.Module):
    """Goes one of two ways, as its input says."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.one(x) if float(x.detach()[0, 0]) > float(x.detach()[-1, -1]) else self.other(x)
        return found


class Keep(nn.Module):
    """Cannot be shipped: its function keeps a tensor where nobody sees it."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = Hidden.apply(x, 0.5)  # type: ignore[no-untyped-call]
        return found


Told = tuple[list[Tensor], dict[str, Tensor], dict[int, str]]
"""Losses, gradients and mechanisms."""


def odd_blocks(plan: Plan | None) -> Told:
    """Blocks that pass things through, change them, and branch."""
    torch.manual_seed(0)
    return _gradients(nn.Sequential(nn.Linear(3, 3), Both(), Clip(), Branch(), nn.Linear(3, 2)), plan)


def norms_that_run_again(plan: Plan | None) -> Told:
    """Batch norm in a stage that cannot be shipped."""
    torch.manual_seed(0)
    return _gradients(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), Keep(), nn.Linear(3, 2)).double(), plan)


def _gradients(model: nn.Sequential, plan: Plan | None) -> Told:
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
