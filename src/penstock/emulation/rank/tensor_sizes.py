"""Sizes of the tensors of an emulation.

A micro-batch has `GRID` rows instead of its own number, so that every share of a micro-batch is a whole number of rows,
as in the costs, where rows are divisible. Activations are rows of bytes; parameters are float32 numbers.
"""

from dataclasses import dataclass

from penstock.plan.pricing import Costs

GRID = 1000
"""Rows of an emulated micro-batch. A share is off by at most half a row."""
NUMBER_BYTES = 4


@dataclass(frozen=True)
class StageSizes:
    """Bytes for each row of a stage's input, output and saved tensors, and its number of trained parameters."""

    input_width: int
    output_width: int
    kept_width: int
    num_parameters: int


def sizes_of(costs: Costs, stage: int) -> StageSizes:
    """Return the sizes of a stage. Each is at least 1, as an empty payload takes a message too."""
    return StageSizes(
        input_width=_width(costs.input_bytes[stage]),
        output_width=_width(costs.output_bytes[stage]),
        kept_width=_width(costs.kept_bytes[stage]),
        num_parameters=num_numbers(float(costs.trained_bytes[stage])),
    )


def num_numbers(num_bytes: float) -> int:
    """Return how many float32 numbers have this size."""
    return max(1, round(num_bytes / NUMBER_BYTES))


def reduced_bytes(costs: Costs, number: int) -> float:
    """Return the bytes that a reduction sums, given its index in `costs.reductions`."""
    ring = costs.reductions[number].ring
    passes = 1 if is_sharded(costs, number) else 2
    return ring.sent_bytes * len(ring.devices) / (passes * (len(ring.devices) - 1))


def is_sharded(costs: Costs, number: int) -> bool:
    """Return whether a reduction, given its index in `costs.reductions`, is a reduce-scatter."""
    item = costs.reductions[number]
    return not item.is_tie and bool(costs.sharded[item.number])


def _width(num_bytes: float) -> int:
    return max(1, round(num_bytes / GRID))
