"""Shapes of values as functions of the number of rows, inferred from runs with two numbers of rows."""

from dataclasses import dataclass

import torch

from penstock.errors import InputError, MismatchError
from penstock.model.tracing import COARSER_BLOCKS, Record, Value


@dataclass(frozen=True)
class RowShape:
    """The shape of a value: each dimension is a constant or proportional to the rows."""

    sizes: tuple[int, ...]
    per_row: tuple[int, ...]
    """Size per row; zero where the dimension is constant."""
    dtype: torch.dtype
    device: torch.device
    origin: str

    def at(self, rows: int) -> tuple[int, ...]:
        """Return the shape for a number of rows."""
        return tuple(each * rows if each else size for size, each in zip(self.sizes, self.per_row, strict=True))


def infer_shapes(one: Record, other: Record) -> tuple[RowShape, ...]:
    """Infer the shape of every value from two records of the same trace with different rows."""
    last = len(one.blocks) - 1
    return tuple(
        _infer_shape(first, second, one.rows, other.rows, matters=first.unit < last)
        for first, second in zip(one.values, other.values, strict=True)
    )


def count_rows(shapes: tuple[RowShape, ...], activations: tuple[torch.Tensor, ...], default: int) -> int:
    """Return the number of rows of activations with these shapes, and check all shapes."""
    rows = default
    for shape, tensor in zip(shapes, activations, strict=True):
        dim = next((dim for dim, each in enumerate(shape.per_row) if each), None)
        if dim is not None and dim < tensor.dim():
            rows = tensor.shape[dim] // shape.per_row[dim]
            break
    for shape, tensor in zip(shapes, activations, strict=True):
        if tuple(tensor.shape) != shape.at(rows):
            raise MismatchError(
                f"{shape.origin} has shape {tuple(tensor.shape)}, but {shape.at(rows)} with the sample inputs",
                hint="Only the number of rows may differ from the sample inputs.",
            )
    return rows


def _infer_shape(one: Value, other: Value, rows: int, other_rows: int, *, matters: bool) -> RowShape:
    """Infer one shape. An irregular shape is an error only if a later block needs it (`matters`)."""
    per_row = [0] * len(one.shape)
    is_regular = len(one.shape) == len(other.shape)
    for dim, (size, other_size) in enumerate(zip(one.shape, other.shape, strict=False)):
        if size != other_size:
            per_row[dim] = size // rows
            is_regular = is_regular and size % rows == 0 and size * other_rows == other_size * rows
    if matters and not is_regular:
        raise InputError(
            f"{one.origin} has shape {one.shape} for {rows} rows and {other.shape} for {other_rows}: "
            "each dimension must be constant or proportional to the rows",
            hint=COARSER_BLOCKS,
        )
    return RowShape(one.shape, tuple(per_row), one.dtype, one.device, one.origin)
