"""Training in a single process with the interface of a Pipeline: same micro-batches, same random numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.model import Block, plain_inputs
from penstock.profile import find_precision
from penstock.runtime.verify.plain_precision import PlainPrecision
from penstock.runtime.verify.plain_reference import reference_step


class SingleProcess:
    """Trains a whole model in this process, by `reference_step`.

    Args:
        model: The model, on its device.
        blocks: Its blocks, as the pipeline has them. They name the layers of random numbers.
        num_microbatches: Number of micro-batches of an iteration.
        loss: The loss function, as for a pipeline; None for the model's own.
        seed: Seed of the random numbers.
        precision: Name of the precision; None: the model computes as it is.
        loss_scale: The first loss scale of a precision that scales the loss.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[Block],
        num_microbatches: int,
        loss: Callable[[Any, Any], Any] | None,
        *,
        seed: int = 0,
        precision: str | None = None,
        loss_scale: float = 65536.0,
    ) -> None:
        self._model = model
        self._blocks = blocks
        self._num_microbatches = num_microbatches
        self._loss = loss
        self._seed = seed
        self._step = 0
        recipe = None if precision is None else find_precision(precision)
        self._precision = PlainPrecision(model, recipe, loss_scale)

    @property
    def loss_scale(self) -> float:
        """The loss scale."""
        return self._precision.scale

    @property
    def skips_step(self) -> bool:
        """Whether the optimizer step is skipped, because gradients are not finite."""
        return self._precision.skips_step

    def optimizer(self, kind: Callable[..., torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        """Create an optimizer for all trained parameters."""
        optimizer = kind(list(self.named_parameters().values()), **options)
        optimizer.register_step_pre_hook(lambda *_: self._precision.before_optimizer())
        optimizer.register_step_post_hook(lambda *_: self._precision.after_optimizer())
        return optimizer

    def step(self, inputs: Any, targets: Any = None) -> Tensor:
        """Run one iteration: add its gradients to `parameter.grad`, and return the loss."""
        step, self._step = self._step, self._step + 1
        return reference_step(
            self._model,
            self._blocks,
            self._num_microbatches,
            self._loss,
            plain_inputs(inputs),
            plain_inputs(targets),
            step=step,
            seed=self._seed,
            precision=self._precision,
        )

    def full_parameters(self) -> dict[str, Tensor]:
        """Return the values of the parameters, by name."""
        return {name: item.detach() for name, item in self.named_parameters().items()}

    def clip_grad_norm(self, max_norm: float) -> Tensor:
        """Scale all gradients so that their norm is at most `max_norm`. Returns the norm before."""
        return torch.nn.utils.clip_grad_norm_(list(self.named_parameters().values()), max_norm)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The trained parameters."""
        return self._precision.parameters

    def named_buffers(self) -> dict[str, Tensor]:
        """All buffers."""
        return dict(self._model.named_buffers())

    def close(self) -> None:
        """Does nothing: there is no communication to finish."""
