"""The training loop: batches, iterations, gradient accumulation, clipping and optimizer steps."""

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
    """The methods of a `Pipeline`, or of single-process training, that the loop uses."""

    def step(self, inputs: Any, targets: Any = None) -> Tensor:
        """Compute the gradients of a batch; return its loss."""

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that this rank trains."""

    @property
    def skips_step(self) -> bool:
        """Whether the optimizer step is skipped, because gradients are not finite."""

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Clip the norm of all gradients of the model."""


@dataclass(frozen=True)
class Recipe:
    """Options of the training loop."""

    num_steps: int
    num_accumulated: int = 1
    """Batches for each optimizer step."""
    max_norm: float | None = None
    first_step: int = 0
    """First step to run. The batches of earlier steps are skipped."""


@dataclass(frozen=True)
class StepResult:
    """Result of one optimizer step."""

    step: int
    loss: float
    num_rows: int
    seconds: float
    batch: Batch
    """The last batch of the step."""


def train_steps(
    trainer: Trainer,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    recipe: Recipe,
    *,
    scheduler: Any = None,
    on_step: Callable[[int], None] = lambda _step: None,
    before_optimizer: Callable[[], None] = lambda: None,
) -> Iterator[StepResult]:
    """Run optimizer steps until all steps are done or the batches end.

    Args:
        trainer: Computes gradients.
        optimizer: Optimizer of the trainer's parameters.
        batches: Batches of inputs and targets.
        recipe: Options of the loop.
        scheduler: Learning-rate scheduler; it steps after each optimizer step.
        on_step: Called with the step before its first batch is read.
        before_optimizer: Called before each optimizer step.

    Yields:
        The result of each step.
    """
    for _ in range(recipe.first_step * recipe.num_accumulated):
        next(batches, None)
    for step in range(recipe.first_step, recipe.num_steps):
        began_s = perf_counter()
        on_step(step)
        optimizer.zero_grad()
        losses, num_rows = [], 0
        batch: Batch | None = None
        for _ in range(recipe.num_accumulated):
            batch = next(batches, None)
            if batch is None:
                return
            losses.append(trainer.step(*batch))
            num_rows += count_rows(*batch)
        assert batch is not None, "a step has at least one batch"
        if recipe.num_accumulated > 1:
            _average(trainer, recipe.num_accumulated)
        if recipe.max_norm is not None:
            trainer.clip_grad_norm(recipe.max_norm)
        before_optimizer()
        is_skipped = trainer.skips_step
        optimizer.step()
        if scheduler is not None and not is_skipped:
            scheduler.step()
        loss = float(torch.stack([item.detach() for item in losses]).mean())
        yield StepResult(step, loss, num_rows, perf_counter() - began_s, batch)


def _average(trainer: Trainer, num: int) -> None:
    """Turn the sum of the gradients of several batches into their mean."""
    for parameter in trainer.named_parameters().values():
        if parameter.grad is not None:
            parameter.grad /= num
