"""The loss at the end of the last stage: the part of each micro-batch in the mean over all rows."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from penstock.errors import InputError

Loss = Callable[[Any, Any], Tensor]
"""A loss function: output and targets to the mean over their rows."""


def scale_loss(loss: Loss, targets: Any, portion: float) -> Callable[[Any], Tensor]:
    """Wrap a loss function so that it gives the part of some rows in the mean over all rows.

    Args:
        loss: The user's loss function.
        targets: The targets of the rows.
        portion: The number of these rows divided by the number of rows of the batch.

    Returns:
        A function of the last layer's output. It raises InputError if the loss is not a single number.
    """

    def compute_loss(output: Any) -> Tensor:
        value = loss(output, targets)
        if not isinstance(value, Tensor) or value.dim():
            kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"the loss function returned {kind}", hint="Return one number: the mean over the rows.")
        return value * portion

    return compute_loss


def sum_losses(losses: Sequence[Tensor]) -> Tensor:
    """Sum the losses of micro-batches in order."""
    total = losses[0].clone()
    for item in losses[1:]:
        total = total + item
    return total
