"""The batch that a step is given: how many rows it has, and some of them."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.runtime.tensors.rows import Rows


def count_rows(inputs: Any, targets: Any) -> int:
    """The rows of a batch: the first dimension of every tensor in it."""
    shapes = [tuple(leaf.shape) for leaf in pytree.tree_leaves((inputs, targets)) if isinstance(leaf, Tensor)]
    if not shapes:
        raise InputError("there is no tensor in the inputs and targets", hint="Give a batch of tensors, rows first.")
    for shape in shapes:
        if not shape or shape[0] != shapes[0][0]:
            raise InputError(
                f"the inputs and targets have tensors of shapes {shapes[0]} and {shape}, which differ in their rows",
                hint="Every tensor of the inputs and targets must have the rows of the batch first.",
            )
    if shapes[0][0] == 0:
        raise InputError("the batch has no rows")
    return shapes[0][0]


def some_rows(batch: Any, rows: Rows, device: torch.device) -> Any:
    """The same with these rows only, on a device."""

    def cut(leaf: Any) -> Any:
        return leaf.detach()[rows.start : rows.stop].to(device) if isinstance(leaf, Tensor) else leaf

    return cut(batch) if isinstance(batch, Tensor) else pytree.tree_map(cut, batch)


def signature(inputs: Any, targets: Any) -> tuple[Any, ...]:
    """What decides the shapes of everything that follows."""
    leaves, tree = pytree.tree_flatten((inputs, targets))
    for leaf in leaves:
        if not isinstance(leaf, Tensor | Hashable):
            raise InputError(
                f"the inputs and targets have a {type(leaf).__name__} in them, which ranks cannot compare",
                hint="Give tensors, and plain values such as numbers and text.",
            )
    return str(tree), tuple((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
