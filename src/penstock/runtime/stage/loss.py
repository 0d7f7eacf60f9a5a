"""The loss at the end of the last stage: the part of each micro-batch in the mean over all rows."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from penstock.errors import InputError
from penstock.model import LossFunction, read_loss


def scale_loss(loss: LossFunction, targets: Any, portion: float) -> Callable[[Any], Tensor]:
    """Wrap a loss function so that it gives the part of some rows in the mean over all rows.

    Args:
        loss: The user's loss function, which returns a mean.
        targets: The targets of the rows.
        portion: The weight of these rows in the batch.

    Returns:
        A function of the last layer's output. It raises InputError if the loss is not a single number.
    """

    def compute_loss(output: Any) -> Tensor:
        value, count = read_loss(loss(output, targets))
        if count is not None:
            raise InputError(
                "the loss function returned a sum and a count, but one number before",
                hint="Return the same kind of value in every step.",
            )
        return value * portion

    return compute_loss


def sum_losses(losses: Sequence[Tensor]) -> Tensor:
    """Sum the losses of micro-batches in order."""
    total = losses[0].clone()
    for item in losses[1:]:
        total = total + item
    return total
