"""Backwards of the first stage, whole where it costs something to part them.

Where a device spends something on having input and weight gradients apart (`Costs.joined_s`), a backward is parted only
if that lets somebody go on earlier. Nobody waits for the gradient of what enters the first stage: there an I and a W
that stand together are one job. If they do not, I can also go to where W is, so that what stood between them comes
earlier; that pays unless I filled a wait. Elsewhere to join what stands together was tried, and gained nothing.

Cost: O(jobs).
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import NONE, Kind, Program, find_jobs, program_from_arrays


class FirstWhole(NamedTuple):
    """A program with backwards of the first stage whole; the same one where there is nothing to join."""

    near: Program
    """Those whose parts stand together."""
    all: Program
    """All of them."""


def join_first(program: Program, costs: Costs) -> FirstWhole:
    """Both ways to join the parts of the first stage's backwards."""
    pairs = _pairs(program, costs)
    together: Ints = pairs[pairs[:, 1] == pairs[:, 0] + 1]
    near = _with_joined(program, together)
    return FirstWhole(near, near if len(together) == len(pairs) else _with_joined(program, pairs))


def _pairs(program: Program, costs: Costs) -> Ints:
    """Where I and W of the first stage stand that can be joined."""
    wanted = (costs.replica_stage == 0) & (costs.joined_s > 0)
    if not wanted.any() or not (program.kind == Kind.I).any():
        return np.empty((0, 2), dtype=np.int64)
    jobs = find_jobs(program, costs)
    pairs = np.stack([jobs.backward[wanted].ravel(), jobs.weights[wanted].ravel()], axis=1)
    parted: Ints = pairs[(pairs != NONE).all(axis=1) & (pairs[:, 0] != pairs[:, 1])]
    return parted


def _with_joined(program: Program, pairs: Ints) -> Program:
    """Each W becomes the whole backward, and its I is gone."""
    if not len(pairs):
        return program
    kind = program.kind.copy()
    kind[pairs[:, 1]] = Kind.B
    left = np.ones(program.num_actions, dtype=bool)
    left[pairs[:, 0]] = False
    counts = np.bincount(program.device_of[left], minlength=len(program.devices))
    return program_from_arrays(
        program.plan, program.devices, counts, kind[left], program.stage[left], program.microbatch[left]
    )
