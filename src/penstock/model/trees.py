"""Nested tuples, lists and dicts of tensors: their tensors, bytes and rows.

The rows of a batch are the first dimension of its tensors, and the items of a list of dicts (`row_lists.py`). A tensor
without dimensions, or with a first dimension of 1 beside others with more rows, has no rows: it is used whole with any
of them, as broadcasting does.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model.packed_rows import fold_packed
from penstock.model.row_lists import RowList, map_batch, resized, split_batch


def tensors_of(tree: Any) -> list[Tensor]:
    """Return the tensors of a tree from left to right, with duplicates."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def map_tensors(change: Any, tree: Any) -> Any:
    """Return the tree with each tensor replaced by `change(tensor)`."""
    return pytree.tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, tree)


def bytes_of(tree: Any) -> int:
    """Return the bytes of the tensors of a tree; a tensor that occurs twice is counted once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _once(tensors_of(tree)))


def plain_inputs(inputs: Any) -> Any:
    """Return inputs with every mapping, such as a tokenizer's `BatchEncoding`, as a plain dict.

    A dict is the keyword arguments of a model. Other mappings are leaves to torch's functions on trees. Tensors of
    packed entries get a dimension of rows (`packed_rows.py`). A list of dicts has one for every row (`row_lists.py`).
    """
    return fold_packed(_plain(inputs))


def _plain(inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return {key: _plain(value) for key, value in inputs.items()}
    if type(inputs) in (tuple, list, RowList):
        items = [_plain(item) for item in inputs]
        is_per_row = isinstance(inputs, list) and items and all(type(item) is dict for item in items)
        return RowList(items) if is_per_row else type(inputs)(items)
    return inputs


def rows_of(inputs: Any) -> int:
    """Return the rows of inputs: the first dimension of the first tensor in which it is not 1, or 1.

    Raises:
        InputError: No tensor has a dimension.
    """
    tensors, lists = split_batch(inputs)
    sizes = [*map(len, lists), *(tensor.shape[0] for tensor in tensors if tensor.dim())]
    if lists:
        return sizes[0]
    if not sizes:
        raise InputError("no input tensor has rows", hint="Rows are the first dimension of input tensors.")
    return next((size for size in sizes if size != 1), 1)


def check_rows(batch: Any) -> None:
    """Check that every tensor of a batch has its rows, or none.

    Raises:
        InputError: A tensor has another first dimension.
    """
    tensors, lists = split_batch(batch)
    shapes = [tuple(tensor.shape) for tensor in tensors if tensor.dim() and tensor.shape[0] != 1]
    for items in lists:
        _check_items(items, rows_of(batch))
        if shapes and len(items) != shapes[0][0]:
            raise InputError(
                f"the batch has a tensor of shape {shapes[0]} and a list of {len(items)} dicts",
                hint="A list of dicts must have one item for every row of the batch.",
            )
    for shape in shapes:
        if shape[0] != shapes[0][0]:
            raise InputError(
                f"the batch has tensors of shapes {shapes[0]} and {shape}, which differ in their rows",
                hint="The first dimension of a tensor must be the rows of the batch, or 1 if the tensor is the same "
                "for all rows. Give a tensor with several entries for each row the shape (rows, entries, ...). Pad "
                "what has another size in every row, such as the boxes of images, to one tensor, or pass a list with a "
                "dict of tensors for every row.",
            )


def _check_items(items: RowList[Any], num_rows: int) -> None:
    if len(items) != num_rows:
        raise InputError(
            f"the batch has lists of {num_rows} and of {len(items)} dicts",
            hint="A list of dicts must have one item for every row of the batch.",
        )
    structures = [pytree.tree_structure(item) for item in items]
    for row, structure in enumerate(structures):
        if structure != structures[0]:
            raise InputError(
                f"in a list with a dict for every row, the dicts of rows 0 and {row} have different keys or structures",
                hint="Give the dicts of all rows the same keys, with an empty tensor where a row has no value.",
            )


def with_rows(inputs: Any, rows: int) -> Any:
    """Return the first `rows` rows of the inputs, repeated from the start if there are fewer.

    A tensor with another first dimension has no rows and is not changed.
    """
    num_rows = rows_of(inputs)

    def change(tensor: Tensor) -> Tensor:
        if not tensor.dim() or tensor.shape[0] != num_rows:
            return tensor
        if rows <= num_rows:
            return tensor[:rows]
        return torch.cat([tensor] * -(-rows // num_rows))[:rows]

    return map_batch(inputs, change, lambda items: resized(items, rows))


_PLAIN = bool | int | float | complex | str | bytes | None
"""Leaves with a value. Other objects, such as a key-value cache, only have a type: a loss does not use them."""


def with_shorter_rows(inputs: Any) -> list[Any]:
    """Return variants of the inputs with rows that are shorter by one, if they have sequences of integers, as tokens.

    The lengths are the second dimensions of tensors of integers. One variant for each length: every dimension of this
    size, but the rows, is shortened. One more for each later tensor of integers of the first length, which may be
    another sequence, such as a translation: only that tensor is shortened.
    """
    sequences = [tensor for tensor in tensors_of(inputs) if tensor.dim() > 1 and not tensor.is_floating_point()]
    lengths = [length for length in dict.fromkeys(tensor.shape[1] for tensor in sequences) if length > 1]

    def shorten(tensor: Tensor, length: int) -> Tensor:
        for dim in range(1, tensor.dim()):
            if tensor.shape[dim] == length:
                tensor = tensor.narrow(dim, 0, length - 1)
        return tensor

    variants = [map_tensors(lambda tensor, length=length: shorten(tensor, length), inputs) for length in lengths]
    for other in sequences[1:]:
        if lengths and other.shape[1] == lengths[0]:
            variants.append(
                map_tensors(
                    lambda tensor, other=other: shorten(tensor, lengths[0]) if tensor is other else tensor, inputs
                )
            )
    return variants


def same_bits(one: Any, other: Any) -> bool:
    """Return whether two trees have the same structure and the same values to the bit (NaN equals NaN)."""
    return first_difference(one, other) is None


def first_difference(one: Any, other: Any) -> str | None:
    """Return the path of the first leaf in which two trees differ; None if they are the same."""
    leaves, spec = pytree.tree_flatten_with_path(one)
    others, other_spec = pytree.tree_flatten(other)
    if spec != other_spec:
        return "the structure"
    for (path, leaf), another in zip(leaves, others, strict=True):
        if not _same_leaf(leaf, another):
            return pytree.keystr(path) or "the value"
    return None


def _same_leaf(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        if isinstance(one, Tensor) or isinstance(other, Tensor):
            return False
        if not isinstance(one, _PLAIN) or not isinstance(other, _PLAIN):
            return type(one) is type(other)
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124


def _once(tensors: list[Tensor]) -> Iterator[Tensor]:
    seen = set()
    for tensor in tensors:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor
