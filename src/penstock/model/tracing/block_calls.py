"""How a block was called in a run, and what it would return for arguments of other shapes.

An abstract run does not execute blocks. The shapes that a block returns follow from real runs with inputs of several
sizes: a dimension of a result equals a dimension of an argument, or is a multiple of one, or is constant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model.tracing.record import COARSER_BLOCKS


class Argument(NamedTuple):
    """A result that is one of the arguments."""

    index: int


class Same(NamedTuple):
    """A result that occurs earlier among the results."""

    index: int


@dataclass(frozen=True)
class Output:
    """A tensor that the block made."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    """The dimensions by descending stride."""
    dtype: torch.dtype


@dataclass(frozen=True)
class BlockCall:
    """One call of a block: shapes of its tensor arguments, and its results."""

    shapes: tuple[tuple[int, ...], ...]
    leaves: tuple[Any, ...]
    """An `Argument`, `Same` or `Output` for each tensor of the result, and the other leaves as they are."""
    spec: pytree.TreeSpec
    changed: frozenset[int]
    """Arguments that the block changed in place."""


def describe_call(arguments: Any, result: Any, numbers: Mapping[int, int], changed: Sequence[bool]) -> BlockCall:
    """Describe a call that has been made.

    Args:
        arguments: The arguments of the call.
        result: The result.
        numbers: The values of known tensors, by id.
        changed: Whether each value was changed in place.
    """
    given = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    indices = {id(tensor): index for index, tensor in reversed(list(enumerate(given)))}
    leaves, spec = pytree.tree_flatten(result)
    described: list[Any] = []
    earlier: dict[int, int] = {}
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            described.append(leaf)
        elif id(leaf) in indices:
            described.append(Argument(indices[id(leaf)]))
        elif id(leaf) in earlier:
            described.append(Same(earlier[id(leaf)]))
        else:
            earlier[id(leaf)] = index
            order = sorted(range(leaf.dim()), key=lambda dim: -leaf.stride(dim))  # noqa: B023
            described.append(Output(tuple(leaf.shape), tuple(order), leaf.dtype))
    return BlockCall(
        tuple(tuple(tensor.shape) for tensor in given),
        tuple(described),
        spec,
        frozenset(
            index for index, tensor in enumerate(given) if id(tensor) in numbers and changed[numbers[id(tensor)]]
        ),
    )


def predict_shape(
    samples: Sequence[BlockCall], position: int, shapes: Sequence[tuple[int, ...]], name: str
) -> tuple[int, ...]:
    """Predict the shape of a result for arguments of these shapes.

    Args:
        samples: Calls of the block with arguments of several sizes.
        position: The leaf of the result.
        shapes: The shapes of the tensor arguments.
        name: The block, for error messages.

    Raises:
        InputError: The samples do not determine the shape.
    """
    outputs = [sample.leaves[position].shape for sample in samples]
    for sample in samples:
        if list(sample.shapes) == list(shapes):
            result: tuple[int, ...] = sample.leaves[position].shape
            return result
    if len({len(shape) for shape in outputs}) != 1 or any(len(sample.shapes) != len(shapes) for sample in samples):
        raise _unpredictable(name)
    return tuple(_predict_size(samples, [shape[dim] for shape in outputs], dim, shapes, name) for dim in range(len(outputs[0])))


def _predict_size(
    samples: Sequence[BlockCall], sizes: Sequence[int], dim: int, shapes: Sequence[tuple[int, ...]], name: str
) -> int:
    places = [(index, place) for index, shape in enumerate(shapes) for place in range(len(shape))]
    places.sort(key=lambda place: (place[1] != dim, place[0]))  # the same dimension of an argument first
    known = [
        (index, place)
        for index, place in places
        if all(len(sample.shapes[index]) == len(shapes[index]) for sample in samples)
    ]
    constant = len(set(sizes)) == 1
    for index, place in known:
        if all(sample.shapes[index][place] == size for sample, size in zip(samples, sizes, strict=True)):
            varies = len({sample.shapes[index][place] for sample in samples}) > 1
            if varies or place == dim:
                return shapes[index][place]
    if constant and all(
        len({sample.shapes[index][place] for sample in samples}) > 1 or shapes[index][place] == samples[0].shapes[index][place]
        for index, place in known
    ):
        return sizes[0]  # no argument has a size that the samples do not cover
    for index, place in known:
        if place != dim:
            continue
        ratios = {(size / sample.shapes[index][place]) for sample, size in zip(samples, sizes, strict=True) if sample.shapes[index][place]}
        if len(ratios) == 1 and len({sample.shapes[index][place] for sample in samples}) > 1:
            scaled = shapes[index][place] * ratios.pop()
            if scaled == int(scaled):
                return int(scaled)
    if constant:
        return sizes[0]
    raise _unpredictable(name)


def _unpredictable(name: str) -> InputError:
    return InputError(
        f"the shapes that block {name!r} returns for inputs of this size do not follow from those of the sample inputs",
        hint=f"Each dimension must be constant, or proportional to one of the arguments. {COARSER_BLOCKS}",
    )
