"""The loss at the end of the last stage: each micro-batch's part of the mean over all rows."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from penstock.errors import InputError

Loss = Callable[[Any, Any], Tensor]


def scaled(loss: Loss, targets: Any, portion: float) -> Callable[[Any], Tensor]:
    """What follows the last block: the loss of some rows, as their part of the mean over all rows."""

    def finish(output: Any) -> Tensor:
        found = loss(output, targets)
        if not isinstance(found, Tensor) or found.dim():
            shape = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"the loss gives {shape}", hint="It must give one number: the mean over its rows.")
        return found * portion

    return finish


def add_up(losses: Sequence[Tensor]) -> Tensor:
    """Losses of micro-batches, added in order."""
    total = losses[0].clone()
    for item in losses[1:]:
        total = total + item
    return total
