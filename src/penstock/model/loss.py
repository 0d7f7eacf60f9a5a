"""Loss functions: what they return, and the loss that a model itself computes."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from penstock.errors import InputError

LossFunction: TypeAlias = Callable[..., Any]
"""Output and targets to a single number, the mean over rows; or to a pair, the sum and the count of a mean."""


class LossValue(NamedTuple):
    """The result of a loss function."""

    value: Tensor
    """A single number. With a divisor, it is the sum."""
    divisor: Tensor | float | None = None
    """The count that the sum is divided by; None for a mean."""


def own_loss(output: Any, targets: Any = None) -> Tensor:
    """Return the loss in the output of a model.

    It is the output's `loss`, the output itself if it is a single number, or the only single number of a tuple or list.

    Raises:
        InputError: The output contains no loss, or there are targets, which only a loss function can use.
    """
    if targets is not None:
        raise InputError(
            "there are targets, but no loss function", hint="Pass a loss, or pass the labels as inputs of the model."
        )
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None and isinstance(output, Tensor) and not output.dim():
        loss = output
    if loss is None and isinstance(output, tuple | list):
        singles = [item for item in output if isinstance(item, Tensor) and not item.dim() and item.is_floating_point()]
        if len(singles) > 1:
            raise InputError(
                f"no loss function is given, and the output of the model contains {len(singles)} single numbers",
                hint="Pass a loss function that returns the one to minimize, or return a dict with the key 'loss'.",
            )
        loss = singles[0] if singles else None
    if isinstance(loss, Tensor):
        return loss
    shape = f" of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
    raise InputError(
        f"no loss function is given, and the output of the model contains no loss: it is a "
        f"{type(output).__name__}{shape}",
        hint="Pass a loss function, or inputs with which the model returns its loss (such as labels=...).",
    )


def is_own_loss(loss: LossFunction) -> bool:
    """Return whether a loss function is `own_loss`, or calls it."""
    return loss is own_loss or bool(getattr(loss, "is_own", False))


def read_loss(result: Any) -> LossValue:
    """Return what a loss function has returned.

    Raises:
        InputError: It is neither a single number nor a pair of a sum and a count.
    """
    value, count = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    is_number = isinstance(value, Tensor) and not value.dim()
    if is_number and (count is None or isinstance(count, int | float) or _is_single(count)):
        return LossValue(value, count)
    raise InputError(
        f"the loss function returned {_describe(result)}",
        hint="Return one number, the mean over the rows; or a pair of numbers: the sum, and the count to divide it by.",
    )


def mean_loss(loss: LossFunction | None, targets: Any = None) -> Callable[[Any], Tensor]:
    """Return a function of a model's output that gives the mean.

    Args:
        loss: `loss(output)`, or `loss(output, targets)` if there are targets; None for the model's own.
        targets: The targets.
    """
    function = own_loss if loss is None else loss

    def compute(output: Any) -> Any:
        result = function(output) if targets is None else function(output, targets)
        if not isinstance(result, tuple):
            return result
        value, count = read_loss(result)
        return value if count is None else value / count

    return compute


def _is_single(count: Any) -> bool:
    return isinstance(count, Tensor) and not count.dim() and not count.is_complex()


def _describe(result: Any) -> str:
    if isinstance(result, tuple):
        return f"a tuple of {', '.join(map(_describe, result))}" if result else "an empty tuple"
    return f"a tensor of shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
