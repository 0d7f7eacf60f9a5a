"""Memory for contents without meaning: one piece that all ranks of an emulation read and write at the same time.

Sixteen ranks that each reduce a gigabyte need one gigabyte instead of sixteen, and no time for fresh pages.
"""

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.emulation.rank.tensor_sizes import GRID, NUMBER_BYTES, num_numbers, reduced_bytes, sizes_of
from penstock.plan.pricing import Costs
from penstock.profile import Profile, fit


class Scratch:
    """The shared memory of an emulation. Create it before the ranks are forked from this process.

    Args:
        num_bytes: The size of the largest payload. The system provides only memory that is used.
    """

    def __init__(self, num_bytes: int) -> None:
        self._memory = mmap.mmap(-1, num_bytes)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return len(self._bytes)

    def numbers(self, num: int) -> Tensor:
        """Return a vector of `num` float32 numbers."""
        return self._bytes[: NUMBER_BYTES * num].view(torch.float32)

    def rows(self, num_rows: int, width: int) -> Tensor:
        """Return a payload of rows with `width` bytes each."""
        return self._bytes[: num_rows * width].view(num_rows, width)

    def like(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor | None:
        """Return memory for a tensor of a form; None if it is not a payload of `rows` or `numbers`."""
        if dtype == torch.uint8 and len(shape) == 2 and tuple(stride) == (shape[1], 1):
            return self.rows(shape[0], shape[1])
        if dtype == torch.float32 and len(shape) == 1 and tuple(stride) == (1,) and shape[0] > 1:
            return self.numbers(shape[0])
        return None


def largest_payload(costs: Costs) -> int:
    """The bytes of the largest payload of a plan."""
    reduced = [num_numbers(reduced_bytes(costs, number)) for number in range(len(costs.reductions))]
    sizes = [sizes_of(costs, number) for number in range(costs.plan.num_stages)]
    widths = [max(item.input_width, item.output_width, item.kept_width) for item in sizes]
    numbers = [*reduced, *(item.num_parameters for item in sizes)]
    return max(NUMBER_BYTES * max(numbers), GRID * max(widths))


def largest_payload_of_any_plan(profile: Profile, micro_batch_size: int) -> int:
    """The bytes that a payload has at most under any plan: the model's parameters, or all saved tensors."""
    sizes = fit(profile, profile.kinds[0]).at(micro_batch_size)
    inputs = profile.input_bytes * micro_batch_size / profile.micro_batch_size
    widest = float(sizes.cut_bytes.max() + sizes.saved_bytes.sum()) + inputs
    return int(max(float(sizes.parameter_bytes.sum()) + NUMBER_BYTES, widest + GRID)) + GRID
