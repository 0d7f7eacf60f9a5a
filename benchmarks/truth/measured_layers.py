"""Profiles with measured times of blocks and ends, from the rows without pipelines, as a user would measure them.

A row without a pipeline is affine in the number of micro-batches, and its parts in the number of blocks. Seconds of the
ends and of a block state it: for a micro-batch of each size, and for an iteration (the optimizer), which is the same
for all sizes. Computed profiles divide them over the layers, and into forward and backward.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.truth.rows import Row
from penstock.profile import AllReduce, Profile, Times, Unit

Key = tuple[int, int, int]
"""Hidden size, tensor degree, micro-batch size."""


class Seconds(NamedTuple):
    """Measured seconds of a model's parts."""

    ends_step: float
    block_step: float
    ends: float
    block: float


def key_of(row: Row) -> Key:
    """The part of a row that decides how long its layers take."""
    return row.model.hidden, row.tensor, row.micro_batch_size


def measured_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows without pipelines, and without data parallelism where there is tensor parallelism."""
    return [row for row in rows if row.pipeline == 1 and (row.data == 1 or row.tensor == 1)]


def measure_layers(rows: Sequence[Row], all_reduce: AllReduce, reduced_bytes: dict[Row, float]) -> dict[Key, Seconds]:
    """The parts of rows without pipelines, by least squares of the relative errors.

    Args:
        rows: Rows without pipelines.
        all_reduce: Seconds of the all-reduces of gradients, which are not part of the layers.
        reduced_bytes: For each row the bytes of its gradients on a GPU.
    """
    groups: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.model.hidden, row.tensor), []).append(row)
    found = {}
    for members in groups.values():
        sizes = sorted({row.micro_batch_size for row in members})
        terms = np.zeros((len(members), 2 + 2 * len(sizes)))
        seconds = np.array([row.iteration_s for row in members])
        for index, row in enumerate(members):
            size = 2 + 2 * sizes.index(row.micro_batch_size)
            terms[index, :2] = 1, row.model.layers
            terms[index, size : size + 2] = row.num_microbatches, row.num_microbatches * row.model.layers
            if row.data > 1:
                seconds[index] -= all_reduce(row.data, reduced_bytes[row])
        values, *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(members)), rcond=None)
        values = np.maximum(values, 0.0)
        for index, micro_batch_size in enumerate(sizes):
            at = 2 + 2 * index
            key = (members[0].model.hidden, members[0].tensor, micro_batch_size)
            found[key] = Seconds(*values[:2].tolist(), *values[at : at + 2].tolist())
    return found


def with_measured_layers(profile: Profile, measured: Seconds, num_blocks: int) -> Profile:
    """A computed profile of a model whose parts take the measured seconds."""
    units = profile.units
    ends, blocks = (units[0], units[-1]), units[1:-1]
    scale = {
        True: (measured.ends / _work(ends), measured.ends_step / len(ends)),
        False: (num_blocks * measured.block / _work(blocks), num_blocks * measured.block_step / len(blocks)),
    }
    last = len(units) - 1
    return replace(profile, units=tuple(_scaled(unit, *scale[at in (0, last)]) for at, unit in enumerate(units)))


def trained_bytes(profile: Profile) -> float:
    """Bytes of the gradients of a model, tied ones once."""
    tied = sum(tie.parameter_bytes * (len(tie.units) - 1) for tie in profile.ties)
    return float(sum(unit.trained_bytes for unit in profile.units) - tied)


def _work(units: Sequence[Unit]) -> float:
    return sum(unit.times[0].forward_s + unit.times[0].input_grad_s + unit.times[0].weight_grad_s for unit in units)


def _scaled(unit: Unit, factor: float, step_s: float) -> Unit:
    times: list[Times] = [
        replace(
            time,
            forward_s=factor * time.forward_s,
            input_grad_s=factor * time.input_grad_s,
            weight_grad_s=factor * time.weight_grad_s,
            step_s=step_s,
        )
        for time in unit.times
    ]
    return replace(unit, times=tuple(times))
