"""Whether ranks trained to the numbers of one process."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.plan.pricing.pricing import price
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.types import Program
from penstock.schedules.registry import schedule
from tests.support.runtime.training import Job, Trained, train_alone

TOLERANCE = 1e-6


_KNOWN: dict[tuple[object, ...], Trained] = {}


def alone(job: Job) -> Trained:
    """The same training in one process; plans with as many micro-batches share it."""
    key = (job.kind, job.plan.num_microbatches, job.num_rows, job.double, job.bf16)
    if key not in _KNOWN:
        _KNOWN[key] = train_alone(job)
    return _KNOWN[key]


def keeps_every_order(job: Job) -> bool:
    """Whether nothing is added up in another order than in one process: then the bits must be the same."""
    assert job.profile is not None
    assert job.cluster is not None
    costs = price(job.plan, job.profile, job.cluster)
    return not costs.reductions and not costs.tied_stages and in_order(lower(schedule(costs), costs))


def in_order(program: Program) -> bool:
    """Whether every device has the micro-batches of each stage in order."""
    for kinds in ((Kind.F,), (Kind.W, Kind.B)):
        at = np.flatnonzero(np.isin(program.kind, kinds))
        key = program.device_of[at].astype(np.int64) * 1000 + program.stage[at]
        numbers = program.microbatch[at][np.argsort(key, kind="stable")]
        if (np.diff(numbers)[np.diff(np.sort(key)) == 0] < 0).any():
            return False
    return True


def check(job: Job, ranks: Sequence[Trained], *, exact: bool, tolerance: float = TOLERANCE) -> None:
    """Every loss on every rank, every parameter on every rank that has it, and every buffer."""
    expected = alone(job)
    assert {name for rank in ranks for name in rank.parameters} == set(expected.parameters)
    assert {name for rank in ranks for name in rank.buffers} == set(expected.buffers)
    first = ranks[0]
    for rank in ranks:
        assert all(torch.equal(one, other) for one, other in zip(rank.losses, first.losses, strict=True))
        pairs = [(found, expected.parameters[name]) for name, found in rank.parameters.items()]
        pairs += [(found, expected.buffers[name]) for name, found in rank.buffers.items()]
        pairs += list(zip(rank.losses, expected.losses, strict=True))
        if exact:
            assert all(torch.equal(found, wanted) for found, wanted in pairs)
        for found, wanted in zip(rank.losses, expected.losses, strict=True):
            assert (found - wanted).abs() <= tolerance * wanted.abs()
    together: dict[str, Tensor] = {}
    for rank in ranks:
        for name, found in rank.parameters.items():
            # Whoever holds a parameter holds the same numbers.
            assert torch.equal(found, together.setdefault(name, found))
    held: dict[str, Tensor] = {}
    for rank in ranks:
        for name, found in rank.buffers.items():
            assert torch.equal(found, held.setdefault(name, found))
            wanted = expected.buffers[name].double()
            assert (found.double() - wanted).norm() <= tolerance * wanted.norm()
    off = torch.stack([(together[name] - wanted).norm() for name, wanted in expected.parameters.items()]).norm()
    scale = torch.stack([wanted.norm() for wanted in expected.parameters.values()]).norm()
    assert off <= tolerance * scale
