"""How a block was called in a run, and what it would return for arguments of other shapes.

An abstract run does not execute blocks. The shapes that a block returns follow from real runs with inputs of several
sizes: a dimension of a result equals a dimension of an argument, or is a multiple of one, or differs from one by a
constant, or is constant. A block that returns another shape is refused when it runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model.tracing.record import COARSER_BLOCKS


class Argument(NamedTuple):
    """A result that is one of the arguments."""

    path: str


class Same(NamedTuple):
    """A result that occurs earlier among the results."""

    position: int


@dataclass(frozen=True)
class Output:
    """A tensor that the block made."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    """The dimensions by descending stride."""
    dtype: torch.dtype


Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of tensor arguments, and the arguments that are numbers or shapes, by their paths in the arguments."""


@dataclass(frozen=True)
class BlockCall:
    """One call of a block: shapes of its tensor arguments, and its results."""

    shapes: Shapes
    """The sizes on which the shapes of results may depend."""
    leaves: tuple[Any, ...]
    """An `Argument`, `Same` or `Output` for each tensor of the result, and the other leaves as they are."""
    spec: pytree.TreeSpec
    changed: frozenset[str]
    """Arguments that the block changed in place."""


def tensor_arguments(arguments: Any) -> dict[str, Tensor]:
    """Return the tensors among the arguments of a call, by their paths."""
    leaves, _ = pytree.tree_flatten_with_path(arguments)
    return {pytree.keystr(path): leaf for path, leaf in leaves if isinstance(leaf, Tensor)}


def shapes_of(arguments: Any) -> Shapes:
    """Return the sizes among the arguments of a call: shapes of tensors, shapes as such, and integers."""
    leaves, _ = pytree.tree_flatten_with_path(arguments)
    shapes: dict[str, tuple[int, ...]] = {}
    for path, leaf in leaves:
        if isinstance(leaf, Tensor):
            shapes[pytree.keystr(path)] = tuple(leaf.shape)
        elif isinstance(leaf, torch.Size):
            shapes[pytree.keystr(path)] = tuple(leaf)
        elif isinstance(leaf, int) and not isinstance(leaf, bool):
            shapes[pytree.keystr(path)] = (leaf,)
    return shapes


def describe_call(arguments: Any, result: Any, numbers: Mapping[int, int], changed: Sequence[bool]) -> BlockCall:
    """Describe a call that has been made.

    Args:
        arguments: The arguments of the call.
        result: The result.
        numbers: The values of known tensors, by id.
        changed: Whether each value was changed in place.
    """
    given = tensor_arguments(arguments)
    paths = {id(tensor): path for path, tensor in reversed(given.items())}
    leaves, spec = pytree.tree_flatten(result)
    described: list[Any] = []
    earlier: dict[int, int] = {}
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            described.append(leaf)
        elif id(leaf) in paths:
            described.append(Argument(paths[id(leaf)]))
        elif id(leaf) in earlier:
            described.append(Same(earlier[id(leaf)]))
        else:
            earlier[id(leaf)] = index
            strides = leaf.stride()
            order = sorted(range(leaf.dim()), key=strides.__getitem__, reverse=True)
            described.append(Output(tuple(leaf.shape), tuple(order), leaf.dtype))
    return BlockCall(
        shapes_of(arguments),
        tuple(described),
        spec,
        frozenset(path for path, tensor in given.items() if id(tensor) in numbers and changed[numbers[id(tensor)]]),
    )


def have_same_results(calls: Sequence[BlockCall], others: Sequence[BlockCall]) -> bool:
    """Return whether the blocks have the same results in two runs, except for their sizes."""
    return all(
        call.spec == other.spec and call.changed == other.changed and _kinds(call) == _kinds(other)
        for call, other in zip(calls, others, strict=True)
    )


def _kinds(call: BlockCall) -> list[Any]:
    return [(len(leaf.shape), leaf.dtype) if isinstance(leaf, Output) else leaf for leaf in call.leaves]


def predict_shape(samples: Sequence[BlockCall], position: int, shapes: Shapes, name: str) -> tuple[int, ...]:
    """Predict the shape of a result for arguments of these shapes.

    Args:
        samples: Calls of the block with arguments of several sizes.
        position: The leaf of the result.
        shapes: The sizes among the arguments.
        name: The block, for error messages.

    Raises:
        InputError: The samples do not determine the shape.
    """
    outputs: list[tuple[int, ...]] = [sample.leaves[position].shape for sample in samples]
    for sample, output in zip(samples, outputs, strict=True):
        if sample.shapes == shapes:
            return output
    if len({len(shape) for shape in outputs}) != 1:
        raise _unpredictable(name)
    columns = [
        _Column(dim, [sample.shapes[path][dim] for sample in samples], shape[dim])
        for path, shape in shapes.items()
        if all(len(sample.shapes.get(path, ())) == len(shape) for sample in samples)
        for dim in range(len(shape))
    ]
    return tuple(
        _predict_size([shape[dim] for shape in outputs], [item for item in columns if item.dim == dim], columns, name)
        for dim in range(len(outputs[0]))
    )


class _Column(NamedTuple):
    """One dimension of an argument: its sizes in the samples, and its size now."""

    dim: int
    samples: list[int]
    now: int


def _predict_size(sizes: list[int], aligned: Sequence[_Column], columns: Sequence[_Column], name: str) -> int:
    """Predict one dimension. `aligned` are the columns of the same dimension."""
    for column in (*aligned, *(item for item in columns if len(set(item.samples)) > 1)):
        if column.samples == sizes:
            return column.now
    if len(set(sizes)) == 1 and all(len(set(item.samples)) > 1 or item.samples[0] == item.now for item in columns):
        return sizes[0]  # no argument has a size that the samples do not cover
    for column in aligned:
        first, now = column.samples[0], column.now
        is_ratio = all(size * first == sizes[0] * sample for size, sample in zip(sizes, column.samples, strict=True))
        if len(set(column.samples)) > 1 and is_ratio and first and now * sizes[0] % first == 0:
            return now * sizes[0] // first
    if len(set(sizes)) == 1:
        return sizes[0]
    for one, two in pairwise(columns):
        if two.dim == one.dim + 1:  # two dimensions of an argument that the block merges
            products = [first * second for first, second in zip(one.samples, two.samples, strict=True)]
            now, is_ratio = (
                one.now * two.now,
                all(size * products[0] == sizes[0] * product for size, product in zip(sizes, products, strict=True)),
            )
            if is_ratio and products[0] and now * sizes[0] % products[0] == 0:
                return now * sizes[0] // products[0]
    for column in (*aligned, *columns):
        more = sizes[0] - column.samples[0]
        is_offset = all(size - sample == more for size, sample in zip(sizes, column.samples, strict=True))
        if len(set(column.samples)) > 1 and is_offset and column.now + more > 0:
            return column.now + more  # such as the tokens that a decoder predicts, one less than the labels
    raise _unpredictable(name)


def _unpredictable(name: str) -> InputError:
    return InputError(
        f"the shapes that block {name!r} returns for inputs of this size do not follow from those of the sample inputs",
        hint="Each dimension must be constant, proportional to one of the arguments, or differ from one by a constant. "
        f"{COARSER_BLOCKS}",
    )
