"""Images as tokens: patches, and the class token in front of them."""

from penstock.profile.analytic.convolution import convolution
from penstock.profile.analytic.model_parts import Batch
from penstock.profile.analytic.operations import Kernel, Operation, accumulate


def patches(batch: Batch, channels: int, hidden: int, *, image_size: int, patch_size: int, bias: bool) -> Operation:
    """The product of every patch of an image with the same weight."""
    return convolution(
        "patches",
        batch.micro_batch_size,
        (channels, hidden),
        patch_size,
        (image_size, image_size // patch_size),
        bias=bias,
        element_bytes=batch.element_bytes,
        takes_data=True,
    )


def class_token(stream_bytes: int, hidden: int, *, element_bytes: int) -> Operation:
    """A learned token in front of the patches: a full copy; the backward splits the gradient by another copy."""
    copy = Kernel(2 * stream_bytes)
    weight_grad = (accumulate(hidden, element_bytes),)
    return Operation(
        name="class token", parameters=hidden, forward=(copy,), input_grad=(copy,), weight_grad=weight_grad
    )


def first_token(stream_bytes: int) -> Operation:
    """The first token of every row, a view: the head that saves it keeps the whole stream alive.

    The backward scatters the gradient into zeros.
    """
    return Operation(
        name="first token",
        input_grad=(Kernel(stream_bytes),),
        saved_bytes=stream_bytes,
        pending_bytes=stream_bytes,
    )
