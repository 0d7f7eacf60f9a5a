"""Sums in the order in which gloo's all-reduce adds, so that a sharded optimizer gets the same gradients to the bit.

Gloo divides a tensor into as many chunks as there are ranks. Chunk k travels once around the ring and is added up on
its way: it begins at rank k - 1, is added to by k - 2, and so on, and is complete at rank k (all modulo the number of
ranks). `tests/runtime/sharding` compares this with gloo.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

MAX_SEGMENT_BYTES = 1024 * 1024


def chunk_elements(num_elements: int, element_bytes: int, num_ranks: int) -> int:
    """The number of elements of a chunk; the last chunks may be shorter or empty.

    >>> chunk_elements(1002, 4, 3), chunk_elements(3_000_000, 4, 3)
    (334, 1000000)
    """
    total = num_elements * element_bytes
    num_segments = _round_up(max(-(-total // MAX_SEGMENT_BYTES), 2 * num_ranks), num_ranks)
    segment = _round_up(-(-total // num_segments), element_bytes)
    return num_segments // num_ranks * segment // element_bytes


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def sum_in_ring_order(values: Tensor, first: int, num_elements: int) -> Tensor:
    """The sum over ranks of a part of a tensor.

    Args:
        values: [rank, element] the part of the tensor on each rank.
        first: Where the part begins in the tensor.
        num_elements: The number of elements of the tensor.
    """
    num_ranks, length = values.shape
    if num_ranks == 1 or not length:
        return values[0]
    total = torch.empty_like(values[0])
    size = chunk_elements(num_elements, values.element_size(), num_ranks)
    for chunk, begin, end in _chunks(first, first + length, size):
        span = slice(begin - first, end - first)
        out = total[span]
        torch.add(values[(chunk - 1) % num_ranks, span], values[(chunk - 2) % num_ranks, span], out=out)
        for turn in range(3, num_ranks + 1):
            torch.add(out, values[(chunk - turn) % num_ranks, span], out=out)
    return total


def _chunks(begin: int, end: int, size: int) -> Iterator[tuple[int, int, int]]:
    """The chunks of `size` elements that a range has elements of: number, begin and end within the range."""
    for chunk in range(begin // size, -(-end // size)):
        yield chunk, max(begin, chunk * size), min(end, (chunk + 1) * size)
