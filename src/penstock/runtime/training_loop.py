"""The loop around a pipeline: batches, steps, and the optimizer."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from penstock.runtime.tensors import count_rows

Batch = tuple[Any, Any]
"""Inputs and targets."""


class Trainer(Protocol):
    """What the loop needs of a Pipeline, or of a model in one process."""

    def step(self, inputs: Any, targets: Any) -> Tensor:
        """Gradients of a batch, and its loss."""

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Those that are trained here."""

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Scale the gradients of all ranks together."""


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    num_steps: int
    num_accumulated: int = 1
    """Batches to a step of the optimizer."""
    max_norm: float | None = None
    bf16: bool = False
    device_type: str = "cpu"
    first_step: int = 0
    """Where to go on; the batches before it are passed over."""


@dataclass(frozen=True)
class StepDone:
    """One step of the optimizer."""

    step: int
    loss: float
    num_rows: int
    seconds: float
    batch: Batch
    """The last one of the step."""


def train_steps(
    trainer: Trainer,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    recipe: Recipe,
    *,
    scheduler: Any = None,
    begins: Callable[[int], None] = lambda _step: None,
    before_optimizer: Callable[[], None] = lambda: None,
) -> Iterator[StepDone]:
    """Train step after step, until there are no batches left or all steps are done."""
    for _ in range(recipe.first_step * recipe.num_accumulated):
        next(batches, None)
    for step in range(recipe.first_step, recipe.num_steps):
        began_s = perf_counter()
        begins(step)
        optimizer.zero_grad()
        losses, num_rows = [], 0
        batch: Batch | None = None
        for _ in range(recipe.num_accumulated):
            batch = next(batches, None)
            if batch is None:
                return
            with _precision(recipe):
                losses.append(trainer.step(*batch))
            num_rows += count_rows(*batch)
        assert batch is not None, "at least one batch is trained on"
        if recipe.num_accumulated > 1:
            _average(trainer, recipe.num_accumulated)
        if recipe.max_norm is not None:
            trainer.clip_grad_norm(recipe.max_norm)
        before_optimizer()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        loss = float(torch.stack([item.detach() for item in losses]).mean())
        yield StepDone(step, loss, num_rows, perf_counter() - began_s, batch)


def _precision(recipe: Recipe) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(recipe.device_type, torch.bfloat16) if recipe.bf16 else contextlib.nullcontext()


def _average(trainer: Trainer, num: int) -> None:
    """Gradients of several batches have been added up: the step is that of their mean."""
    for parameter in trainer.named_parameters().values():
        if parameter.grad is not None:
            parameter.grad /= num
