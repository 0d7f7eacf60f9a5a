"""The shapes of values for any number of rows, learnt from runs with two numbers of rows."""

from dataclasses import dataclass

import torch

from penstock.errors import InputError, MismatchError
from penstock.model.tracing import COARSER, Record, Value


@dataclass(frozen=True)
class Form:
    """A value's shape: in each dimension a size, or so much for each row."""

    sizes: tuple[int, ...]
    per_row: tuple[int, ...]
    """Zero where the dimension does not depend on the rows."""
    dtype: torch.dtype
    device: torch.device
    origin: str

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape for so many rows."""
        return tuple(each * rows if each else size for size, each in zip(self.sizes, self.per_row, strict=True))


def forms_of(one: Record, other: Record) -> tuple[Form, ...]:
    """The form of every value, from two records of the same course with different rows."""
    last = len(one.blocks) - 1
    return tuple(
        _form(first, second, one.rows, other.rows, matters=first.unit < last)
        for first, second in zip(one.values, other.values, strict=True)
    )


def rows_in(forms: tuple[Form, ...], carry: tuple[torch.Tensor, ...], default: int) -> int:
    """How many rows a carry of these forms has; checks all of its shapes."""
    rows = default
    for form, tensor in zip(forms, carry, strict=True):
        place = next((place for place, each in enumerate(form.per_row) if each), None)
        if place is not None and place < tensor.dim():
            rows = tensor.shape[place] // form.per_row[place]
            break
    for form, tensor in zip(forms, carry, strict=True):
        if tuple(tensor.shape) != form.shape(rows):
            raise MismatchError(
                f"{form.origin} has the shape {tuple(tensor.shape)}, not {form.shape(rows)} as with the sample inputs",
                hint="Only the number of rows may differ from the inputs with which the blocks were found.",
            )
    return rows


def _form(one: Value, other: Value, rows: int, other_rows: int, *, matters: bool) -> Form:
    """A shape that is not plain does no harm where no later unit has to know it."""
    per_row = [0] * len(one.shape)
    is_plain = len(one.shape) == len(other.shape)
    for place, (size, other_size) in enumerate(zip(one.shape, other.shape, strict=False)):
        if size != other_size:
            per_row[place] = size // rows
            is_plain = is_plain and size % rows == 0 and size * other_rows == other_size * rows
    if matters and not is_plain:
        raise InputError(
            f"{one.origin} has the shape {one.shape} for {rows} rows and {other.shape} for {other_rows}: "
            "each dimension must be fixed or a multiple of the rows",
            hint=COARSER,
        )
    return Form(one.shape, tuple(per_row), one.dtype, one.device, one.origin)
