"""The batch of an iteration: number of rows, slices of rows, signature."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.runtime.tensors.rows import Rows


def count_rows(inputs: Any, targets: Any) -> int:
    """The number of rows of a batch: the first dimension of every tensor in it.

    Raises:
        InputError: The batch has no tensor or no rows, or its tensors differ in their first dimension.
    """
    shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves((inputs, targets)) if isinstance(leaf, Tensor)]
    if not shapes:
        raise InputError("inputs and targets contain no tensor", hint="Pass a batch of tensors, rows first.")
    for shape in shapes:
        if not shape or shape[0] != shapes[0][0]:
            raise InputError(
                f"inputs and targets contain tensors of shapes {shapes[0]} and {shape}, which differ in their rows",
                hint="The first dimension of every tensor in inputs and targets must be the rows of the batch.",
            )
    if shapes[0][0] == 0:
        raise InputError("the batch has no rows")
    return shapes[0][0]


def slice_rows(batch: Any, rows: Rows, device: torch.device) -> Any:
    """Slice every tensor of a batch to these rows, and move it to a device."""

    def cut(leaf: Any) -> Any:
        return leaf.detach()[rows.start : rows.stop].to(device) if isinstance(leaf, Tensor) else leaf

    return cut(batch) if isinstance(batch, Tensor) else pytree.tree_map(cut, batch)


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
