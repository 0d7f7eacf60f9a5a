"""Losses of models whose layers compute in a smaller type than float32."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from penstock.model import LossFunction, is_own_loss, map_tensors, read_loss
from penstock.profile import TrainingPrecision


@dataclass(frozen=True)
class Float32Loss:
    """A loss function in float32 of an output of a smaller type, as Megatron computes it.

    The loss that a model computes itself is only returned in float32.
    """

    loss: LossFunction

    @property
    def is_own(self) -> bool:
        """Whether it is the model's own loss."""
        return is_own_loss(self.loss)

    def __call__(self, output: Any, *targets: Any) -> Any:
        """Return the loss, or the sum and the count."""
        result = self.loss(output if self.is_own else map_tensors(_widen, output), *targets)
        value, count = read_loss(result)
        return _widen(value) if count is None else (_widen(value), count)


def loss_for(loss: LossFunction, precision: TrainingPrecision | None) -> LossFunction:
    """Return the loss function for a precision."""
    return loss if precision is None or not precision.has_master_weights else Float32Loss(loss)


def _widen(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
