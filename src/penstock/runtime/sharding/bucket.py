"""The division of a group's parameters between its ranks.

The parameters of a bucket, whose gradients have one type, are one row of elements in the order of the model. Every rank
of the group gets a part of equal length, up to the rounding of `ALIGNMENT`. So at most one parameter less than there
are ranks is divided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.runtime.tensors import grad_dtype

ALIGNMENT = 64
"""Parameters are divided at multiples of this many elements, so that vector instructions group elements as before."""


class Piece(NamedTuple):
    """Elements `start` up to `stop` of a parameter of the bucket."""

    parameter: int
    start: int
    stop: int


@dataclass(frozen=True)
class Bucket:
    """Parameters of a group whose gradients have one type, and the rank of each part.

    Attributes:
        dtype: The type of the gradients.
        names: The names of the parameters.
        sizes: Their numbers of elements.
        bounds: Where the part of each rank begins in the row of all elements, and the end.
        ranks: The ranks of the group, in the order of their parts: that of the process group.
    """

    dtype: torch.dtype
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    bounds: tuple[int, ...]
    ranks: tuple[int, ...]

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """Where each parameter begins in the row of all elements."""
        return (0, *accumulate(self.sizes))[:-1]

    @cached_property
    def parts(self) -> tuple[tuple[Piece, ...], ...]:
        """The pieces of each part."""
        found = []
        for first, last in zip(self.bounds, self.bounds[1:], strict=False):
            pieces = []
            for number, (begin, size) in enumerate(zip(self.begins, self.sizes, strict=True)):
                start, stop = max(0, first - begin), min(size, last - begin)
                if start < stop:
                    pieces.append(Piece(number, start, stop))
            found.append(tuple(pieces))
        return tuple(found)

    def is_whole(self, piece: Piece) -> bool:
        """Whether a piece is a whole parameter."""
        return piece.start == 0 and piece.stop == self.sizes[piece.parameter]

    @cached_property
    def holders(self) -> dict[str, tuple[int, ...]]:
        """The ranks that have a piece of each parameter, in the order of the pieces; the first one for empty ones."""
        found: dict[str, list[int]] = {name: [] for name in self.names}
        for rank, part in zip(self.ranks, self.parts, strict=True):
            for piece in part:
                found[self.names[piece.parameter]].append(rank)
        return {name: tuple(ranks) or self.ranks[:1] for name, ranks in found.items()}


def make_buckets(parameters: Sequence[tuple[str, Tensor]], ranks: Sequence[int]) -> list[Bucket]:
    """Divide the parameters of a group between its ranks.

    Args:
        parameters: The names and the parameters, on any device.
        ranks: The ranks of the group, in the order of their parts.
    """
    by_dtype: dict[torch.dtype, list[tuple[str, Tensor]]] = {}
    for name, item in parameters:
        by_dtype.setdefault(grad_dtype(item), []).append((name, item))
    return [
        Bucket(
            dtype,
            tuple(name for name, _ in items),
            tuple(item.numel() for _, item in items),
            _bounds([(item.numel(), ALIGNMENT if item.is_contiguous() else item.numel()) for _, item in items], ranks),
            tuple(ranks),
        )
        for dtype, items in by_dtype.items()
    ]


def _bounds(sizes: Sequence[tuple[int, int]], ranks: Sequence[int]) -> tuple[int, ...]:
    """Where parts begin, for parameters with these numbers of elements, each divided at multiples of its second number.

    >>> _bounds([(100, 64), (300, 64)], range(4))
    (0, 100, 228, 292, 400)
    """
    ends = list(accumulate(size for size, _ in sizes))
    total = ends[-1] if ends else 0
    bounds = [0]
    for part in range(1, len(ranks)):
        wanted = part * total / len(ranks)
        number = next(index for index, end in enumerate(ends) if wanted <= end) if ends else 0
        begin, (size, unit) = ends[number] - sizes[number][0] if ends else 0, sizes[number] if ends else (0, 1)
        inside = min(size, round((wanted - begin) / max(1, unit)) * max(1, unit))
        bounds.append(max(bounds[-1], begin + inside))
    return (*bounds, total)
