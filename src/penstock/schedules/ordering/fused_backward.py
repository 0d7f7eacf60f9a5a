"""Fused backwards of the first stage, where splitting has a cost.

Where splitting a backward has a cost (`Costs.joined_s`), it pays only if another device can start earlier. No device
waits for the input gradient of the first stage: an adjacent I and W are fused there. If they are not adjacent, I can
move to W, so that the passes between them run earlier; that pays unless I filled a bubble. Fusing adjacent I and W of
other stages was tried and gained nothing.

Cost: O(jobs).
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import NONE, Kind, Program, find_jobs, program_from_arrays


class FirstWhole(NamedTuple):
    """A program with fused backwards of the first stage; the same one if there is nothing to fuse."""

    near: Program
    """Fused where I and W are adjacent."""
    all: Program
    """Fused everywhere."""


def join_first(program: Program, costs: Costs) -> FirstWhole:
    """Both ways to fuse the first stage's backwards."""
    pairs = _pairs(program, costs)
    together: Ints = pairs[pairs[:, 1] == pairs[:, 0] + 1]
    near = _with_joined(program, together)
    return FirstWhole(near, near if len(together) == len(pairs) else _with_joined(program, pairs))


def _pairs(program: Program, costs: Costs) -> Ints:
    """The indices of I and W of the first stage that can be fused."""
    wanted = (costs.replica_stage == 0) & (costs.joined_s > 0)
    if not wanted.any() or not (program.kind == Kind.I).any():
        return np.empty((0, 2), dtype=np.int64)
    jobs = find_jobs(program, costs)
    pairs = np.stack([jobs.backward[wanted].ravel(), jobs.weights[wanted].ravel()], axis=1)
    parted: Ints = pairs[(pairs != NONE).all(axis=1) & (pairs[:, 0] != pairs[:, 1])]
    return parted


def _with_joined(program: Program, pairs: Ints) -> Program:
    """Each W becomes the fused backward, and its I is removed."""
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
