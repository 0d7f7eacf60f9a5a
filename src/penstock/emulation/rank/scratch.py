"""Memory for contents that mean nothing: one piece that all ranks of an emulation read and write at the same time.

So sixteen ranks that each add up a gigabyte need one gigabyte, not sixteen, and no time is lost to fresh pages.
"""

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.emulation.rank.tensor_sizes import GRID, NUMBER_BYTES, num_numbers, reduced_bytes, sizes_of
from penstock.plan.pricing import Costs


class Scratch:
    """The piece; it must be made before the ranks are started from this process."""

    def __init__(self, costs: Costs) -> None:
        reduced = [num_numbers(reduced_bytes(costs, number)) for number in range(len(costs.reductions))]
        sizes = [sizes_of(costs, number) for number in range(costs.plan.num_stages)]
        widths = [max(item.input_width, item.output_width, item.kept_width) for item in sizes]
        numbers = [*reduced, *(item.num_parameters for item in sizes)]
        self._memory = mmap.mmap(-1, max(NUMBER_BYTES * max(numbers), GRID * max(widths)))
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)

    def numbers(self, num: int) -> Tensor:
        """So many numbers."""
        return self._bytes[: NUMBER_BYTES * num].view(torch.float32)

    def rows(self, num_rows: int, width: int) -> Tensor:
        """A carry of so many rows."""
        return self._bytes[: num_rows * width].view(num_rows, width)

    def like(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor | None:
        """Memory for a plain tensor of a form, if it is one of those; None: it is not, or carries a meaning."""
        if dtype == torch.uint8 and len(shape) == 2 and tuple(stride) == (shape[1], 1):
            return self.rows(shape[0], shape[1])
        if dtype == torch.float32 and len(shape) == 1 and tuple(stride) == (1,) and shape[0] > 1:
            return self.numbers(shape[0])
        return None
