"""Tensors that hold the entries of all rows one after another, such as image patches, and the sizes of the rows.

Models of transformers for images of several sizes take `pixel_values` of shape (entries, ...) and an `image_grid_thw`
of shape (rows, 3): row r has as many entries as the product of its sizes. Such a tensor cannot be divided by rows as it
is. If all rows have equally many entries, it gets the shape (rows, entries of a row, ...), in the same memory.
"""

import math
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model.row_lists import is_row_list

_MOST_SIZES = 4
"""Sizes of a row, such as frames, height and width."""


def fold_packed(inputs: Any) -> Any:
    """Return inputs in which tensors of packed entries have a dimension of rows. Other inputs are not changed.

    Raises:
        InputError: The rows of a packed tensor have different numbers of entries.
    """
    leaves, spec = pytree.tree_flatten_with_path(inputs, is_leaf=is_row_list)
    tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
    if len({len(tensor) for _, tensor in tensors}) < 2:
        return inputs
    folded = {}
    for index, (path, leaf) in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.dim():
            counts = _entries_per_row(leaf, [tensor for _, tensor in tensors])
            if len(set(counts)) > 1:
                raise InputError(
                    f"input {pytree.keystr(path)} has {len(leaf)} entries for {len(counts)} rows, but not equally many "
                    f"for each: {', '.join(map(str, counts[:8]))}{', ...' if len(counts) > 8 else ''}",
                    hint="Give all rows of a batch equally many entries (resize or pad the images), so that the batch "
                    "can be divided by rows.",
                )
            if counts:
                folded[index] = leaf.view(len(counts), counts[0], *leaf.shape[1:])
    if not folded:
        return inputs
    return pytree.tree_unflatten([folded.get(index, leaf) for index, (_, leaf) in enumerate(leaves)], spec)


def unfold_packed(inputs: Any) -> Any | None:
    """Return the inputs of which `fold_packed` makes these ones; None if no tensor was packed."""
    leaves, spec = pytree.tree_flatten(inputs, is_leaf=is_row_list)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
    packed = [
        isinstance(leaf, Tensor)
        and leaf.dim() > 1
        and any(_sizes(other) == [leaf.shape[1]] * len(leaf) for other in tensors if other is not leaf)
        for leaf in leaves
    ]
    if not any(packed):
        return None
    return pytree.tree_unflatten(
        [leaf.flatten(0, 1) if is_packed else leaf for leaf, is_packed in zip(leaves, packed, strict=True)], spec
    )


def _entries_per_row(tensor: Tensor, others: list[Tensor]) -> list[int]:
    """Return the entries of each row of a packed tensor, as another tensor states them; empty if none does."""
    for sizes in others:
        if len(sizes) == len(tensor) or sum(len(other) == len(sizes) for other in others) < 2:
            continue  # rows of its own; or nothing else has the rows of these sizes
        counts = _sizes(sizes)
        if sum(counts) == len(tensor):
            return counts
    return []


def _sizes(tensor: Tensor) -> list[int]:
    """Return the product of the sizes of each row; empty if this is no tensor of sizes."""
    is_integer = not (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1
    if not is_integer or tensor.is_meta or tensor.dim() != 2 or not 2 <= tensor.shape[1] <= _MOST_SIZES:
        return []
    return [math.prod(row) if min(row) > 0 else 0 for row in tensor.tolist()]
