"""Models in another precision: their tensors get another type in place, and the values before are kept."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from penstock.model import map_tensors
from penstock.profile import TrainingPrecision

MIN_BYTES = 2
"""Tensors with smaller elements, such as those of quantized weights, are no numbers of their own."""


class Conversion:
    """A model whose floating-point parameters and buffers have been converted in place, as by `model.to(dtype)`.

    The tensors stay the same objects, so layers that share parameters still do. Gradients of converted parameters are
    accumulated in float32, or in the type of the parameters if that is wider.

    Args:
        model: The model.
        precision: The precision. None: nothing is converted.
    """

    def __init__(self, model: nn.Module, precision: TrainingPrecision | None) -> None:
        self._originals: dict[int, tuple[Tensor, Tensor]] = {}
        if precision is None:
            return
        dtype = torch_type(precision.parameter_type)
        for tensor in _tensors(model):
            if can_convert(tensor) and tensor.dtype != dtype:
                original = tensor.detach()
                self._originals[id(tensor)] = (tensor, original)
                _set(tensor, original.to(dtype))

    def original(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor of the model before the conversion."""
        entry = self._originals.get(id(tensor))
        return tensor.detach() if entry is None else entry[1]

    def keep(self, piece: Tensor, values: Tensor) -> None:
        """Note the values that a piece of a parameter had before the conversion."""
        self._originals[id(piece)] = (piece, values)

    def undo(self) -> None:
        """Restore all tensors."""
        for tensor, original in self._originals.values():
            _set(tensor, original)
        self._originals.clear()


def convert_inputs(inputs: Any, precision: TrainingPrecision | None) -> Any:
    """Return a batch whose floating-point tensors have the type of the parameters, as layers expect it."""
    if precision is None or not precision.has_master_weights:
        return inputs
    dtype = torch_type(precision.parameter_type)
    return map_tensors(lambda item: item.to(dtype) if can_convert(item) else item, inputs)


def torch_type(name: str) -> torch.dtype:
    """Return a type of torch by its name.

    >>> torch_type("bfloat16")
    torch.bfloat16
    """
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype


def can_convert(tensor: Tensor) -> bool:
    """Return whether a tensor holds real floating-point numbers."""
    return tensor.is_floating_point() and tensor.element_size() >= MIN_BYTES


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _set(tensor: Tensor, value: Tensor) -> None:
    # The type of the gradients must follow, and only a leaf has one. Torch refuses another type beside a gradient.
    grad, tensor_is_trained = tensor.grad, tensor.requires_grad
    tensor.grad = None
    tensor.data = value
    if tensor_is_trained:
        tensor.grad_dtype = torch.promote_types(value.dtype, torch.float32)
        tensor.grad = None if grad is None else grad.to(tensor.grad_dtype)
