"""Models in the precision of training, for the time of a measurement."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.profile import TrainingPrecision, find_precision

if TYPE_CHECKING:
    from torch import nn


class Sample(NamedTuple):
    """Inputs and loss of a model."""

    inputs: Any
    loss: Any


@contextmanager
def in_precision(name: str | None, model: "nn.Module", inputs: Any, loss: Any) -> Iterator[Sample]:
    """Convert a model within the context, as training in a precision does.

    Args:
        name: The name of the precision. None: the model computes as it is.
        model: The model.
        inputs: Sample inputs.
        loss: The loss function; None for the model's own.

    Yields:
        Inputs and loss in this precision.

    Raises:
        InputError: There is no such precision.
    """
    if name is None:
        yield Sample(inputs, loss)
        return
    import torch

    from penstock.device import float32_products
    from penstock.model import own_loss, plain_inputs
    from penstock.runtime.precision import Conversion, convert_inputs, loss_for, torch_type

    precision = find_precision(name)
    conversion = Conversion(model, precision)
    try:
        with ExitStack() as stack:
            stack.enter_context(float32_products(allow_tf32=precision.uses_tf32))
            if precision.autocast_type is not None:
                device = next((item.device.type for item in model.parameters()), "cpu")
                stack.enter_context(torch.autocast(device, torch_type(precision.autocast_type)))
            used = loss_for(own_loss if loss is None else loss, precision)
            yield Sample(convert_inputs(plain_inputs(inputs), precision), None if used is own_loss else used)
    finally:
        conversion.undo()


def describe_optimizer(precision: TrainingPrecision | None) -> str:
    """Describe the optimizer that a profile assumes, in a sentence."""
    what = "The optimizer is AdamW"
    if precision is None:
        return f"{what} in the precision of the parameters: its step is measured, its state is 2 x parameters."
    copies = " Weights that autocast has cast are kept for a step." if precision.autocast_type else ""
    state = "its state, with master weights," if precision.has_master_weights else "its state"
    return (
        f"Precision {precision.name}. {what} in float32: its step is measured, {state} is "
        f"{(2 + precision.has_master_weights) * 4} bytes for each parameter.{copies}"
    )
