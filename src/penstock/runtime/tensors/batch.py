"""The batch of an iteration: number of rows, slices of rows, signature."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.device import copy_to_device
from penstock.errors import InputError
from penstock.model import check_rows, map_batch, map_tensors, rows_of, tensors_of
from penstock.runtime.tensors.rows import Rows


def count_rows(inputs: Any, targets: Any) -> int:
    """The number of rows of a batch: the first dimension of its tensors, except those that are used whole.

    Raises:
        InputError: The batch has no tensor or no rows, or its tensors differ in their first dimension.
    """
    if not tensors_of((inputs, targets)):
        raise InputError("inputs and targets contain no tensor", hint="Pass a batch of tensors, rows first.")
    check_rows((inputs, targets))
    num_rows = rows_of((inputs, targets))
    if num_rows == 0:
        raise InputError("the batch has no rows")
    return num_rows


def has_rows(tensor: Tensor, num_rows: int) -> bool:
    """Whether a tensor of a batch has a part for every row. Otherwise it is used whole with each of them."""
    return tensor.dim() > 0 and tensor.shape[0] == num_rows


def slice_rows(batch: Any, rows: Rows, device: torch.device) -> Any:
    """Slice every tensor of a batch, and every list with an item for each row, to these rows, and move it to a device.

    A tensor without dimensions, or with a first dimension of 1, is the same for all rows.
    """

    def place(tensor: Tensor) -> Tensor:
        return copy_to_device(tensor.detach(), device)

    def cut(tensor: Tensor) -> Tensor:
        return place(tensor[rows.start : rows.stop] if tensor.dim() and len(tensor) != 1 else tensor)

    return map_batch(batch, cut, lambda items: map_tensors(place, items[rows.start : rows.stop]))


def signature(inputs: Any, targets: Any) -> tuple[Any, ...]:
    """Structure, shapes, types and plain values of a batch. They determine the shapes of all other tensors.

    Raises:
        InputError: The batch contains a value that cannot be hashed.
    """
    leaves, tree = pytree.tree_flatten((inputs, targets))
    for leaf in leaves:
        if not isinstance(leaf, Tensor | Hashable):
            raise InputError(
                f"inputs or targets contain a {type(leaf).__name__}, which ranks cannot compare",
                hint="Pass tensors, and plain values such as numbers and strings.",
            )
    return str(tree), tuple((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
