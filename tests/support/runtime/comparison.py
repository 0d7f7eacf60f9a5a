"""Compares the results of ranks with those of the plain reference in a single process."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.plan.pricing.pricing import price
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.types import Program
from penstock.schedules.registry import schedule
from tests.support.runtime.training import Job, Trained, train_single_process

TOLERANCE = 1e-6


_RESULTS: dict[tuple[object, ...], Trained] = {}


def single_process(job: Job) -> Trained:
    """The same training in a single process. Plans with the same number of micro-batches share it."""
    key = (job.kind, job.plan.num_microbatches, job.num_rows, job.double, job.precision)
    if key not in _RESULTS:
        _RESULTS[key] = train_single_process(job)
    return _RESULTS[key]


def keeps_every_order(job: Job) -> bool:
    """Whether all sums are in the order of a single process. Then results must be equal to the bit."""
    assert job.profile is not None
    assert job.cluster is not None
    costs = price(job.plan, job.profile, job.cluster)
    return not costs.reductions and not costs.tied_stages and in_order(lower(schedule(costs), costs))


def in_order(program: Program) -> bool:
    """Whether every device runs the micro-batches of each stage in order."""
    for kinds in ((Kind.F,), (Kind.W, Kind.B)):
        at = np.flatnonzero(np.isin(program.kind, kinds))
        key = program.device_of[at].astype(np.int64) * 1000 + program.stage[at]
        numbers = program.microbatch[at][np.argsort(key, kind="stable")]
        if (np.diff(numbers)[np.diff(np.sort(key)) == 0] < 0).any():
            return False
    return True


def check(job: Job, ranks: Sequence[Trained], *, exact: bool, tolerance: float = TOLERANCE) -> None:
    """Every loss on every rank, every parameter on every rank that has it, and every buffer."""
    expected = single_process(job)
    assert {name for rank in ranks for name in rank.parameters} == set(expected.parameters)
    assert {name for rank in ranks for name in rank.buffers} == set(expected.buffers)
    first = ranks[0]
    for rank in ranks:
        assert all(torch.equal(one, other) for one, other in zip(rank.losses, first.losses, strict=True))
        pairs = [(actual, expected.parameters[name]) for name, actual in rank.parameters.items()]
        pairs += [(actual, expected.buffers[name]) for name, actual in rank.buffers.items()]
        pairs += list(zip(rank.losses, expected.losses, strict=True))
        if exact:
            assert all(torch.equal(actual, reference) for actual, reference in pairs)
        for actual, reference in zip(rank.losses, expected.losses, strict=True):
            assert (actual - reference).abs() <= tolerance * reference.abs()
    merged: dict[str, Tensor] = {}
    for rank in ranks:
        for name, actual in rank.parameters.items():
            # All holders of a parameter have the same numbers.
            assert torch.equal(actual, merged.setdefault(name, actual))
    held: dict[str, Tensor] = {}
    for rank in ranks:
        for name, actual in rank.buffers.items():
            assert torch.equal(actual, held.setdefault(name, actual))
            reference = expected.buffers[name].double()
            assert (actual.double() - reference).norm() <= tolerance * reference.norm()
    off = torch.stack([(merged[name] - reference).norm() for name, reference in expected.parameters.items()]).norm()
    scale = torch.stack([reference.norm() for reference in expected.parameters.values()]).norm()
    assert off <= tolerance * scale
