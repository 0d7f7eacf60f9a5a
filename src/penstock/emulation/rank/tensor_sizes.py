"""How large the tensors of an emulation are.

Rows are a fine grid instead of the model's own, so that every share of a micro-batch is a whole number of them: costs
are as if rows could be split. A carry has a row of bytes for each; parameters are numbers of four bytes.
"""

from dataclasses import dataclass

from penstock.plan.pricing import Costs

GRID = 1000
"""Rows of a micro-batch here; a share is off by at most half of one."""
NUMBER_BYTES = 4


@dataclass(frozen=True)
class StageSizes:
    """Bytes of a row of what a stage takes, makes and keeps, and its number of parameters."""

    input_width: int
    output_width: int
    kept_width: int
    num_parameters: int


def sizes_of(costs: Costs, stage: int) -> StageSizes:
    """The sizes of a stage. Whatever is there travels: even nothing at all takes a message."""
    return StageSizes(
        input_width=_width(costs.input_bytes[stage]),
        output_width=_width(costs.output_bytes[stage]),
        kept_width=_width(costs.kept_bytes[stage]),
        num_parameters=num_numbers(float(costs.parameter_bytes[stage])),
    )


def num_numbers(num_bytes: float) -> int:
    """As many numbers as have so many bytes."""
    return max(1, round(num_bytes / NUMBER_BYTES))


def reduced_bytes(costs: Costs, number: int) -> float:
    """What a reduction adds up, by its number in `costs.reductions`."""
    ring = costs.reductions[number].ring
    return ring.sent_bytes * len(ring.devices) / (2 * (len(ring.devices) - 1))


def _width(num_bytes: float) -> int:
    return max(1, round(num_bytes / GRID))
