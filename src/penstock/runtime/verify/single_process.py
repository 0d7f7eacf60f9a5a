"""Training in one process with the calls of a Pipeline: the same micro-batches, the same random numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.model import Block
from penstock.runtime.stage import Loss
from penstock.runtime.verify.reference import reference_step


class Alone:
    """A whole model in this process, trained as `reference_step` does it."""

    def __init__(
        self, model: nn.Module, blocks: Sequence[Block], num_microbatches: int, loss: Loss, *, seed: int = 0
    ) -> None:
        self._model = model
        self._blocks = blocks
        self._num_microbatches = num_microbatches
        self._loss = loss
        self._seed = seed
        self._step = 0

    def optimizer(self, kind: Callable[..., torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        """An optimizer of that kind for all parameters that are trained."""
        return kind(list(self.named_parameters().values()), **options)

    def step(self, inputs: Any, targets: Any) -> Tensor:
        """Gradients of one iteration, added to what is there, and the loss."""
        step, self._step = self._step, self._step + 1
        return reference_step(
            self._model,
            self._blocks,
            self._num_microbatches,
            self._loss,
            inputs,
            targets,
            step=step,
            seed=self._seed,
        )

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Scale all gradients so that their norm is at most this; gives the norm before."""
        return torch.nn.utils.clip_grad_norm_(list(self.named_parameters().values()), max_norm)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Those that are trained."""
        return {name: item for name, item in self._model.named_parameters() if item.requires_grad}

    def named_buffers(self) -> dict[str, Tensor]:
        """All of them."""
        return dict(self._model.named_buffers())

    def close(self) -> None:
        """Nothing is on its way."""
