"""Backwards that were parted and had better be whole.

Where a device spends something on having input and weight gradients apart (`Costs.joined_s`), a backward is parted only
if that lets somebody go on earlier. Nobody waits for the gradient of what enters the first segment: there an I and a W
that stand together are one job. If they do not, I can also go to where W is, so that what stood between them comes
earlier; that pays unless I filled a wait. Elsewhere a W that comes right after its I is joined with it if the iteration
takes no longer for it (by the estimate): then what it costs to part them was wasted.

Cost: O(jobs) for the first segment; an estimate, O(jobs and messages), for each pair that is tried elsewhere.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.plan.costs import Costs
from penstock.program.actions import NONE, Kind
from penstock.program.jobs import find_jobs
from penstock.program.types import Program, program_from_arrays
from penstock.schedules.estimate import Estimator

EFFORT = 600_000
"""Jobs timed in all, over all pairs that are tried."""

Pairs = npt.NDArray[np.int64]


class FirstWhole(NamedTuple):
    """A program with backwards of the first segment whole; the same one where there is nothing to join."""

    near: Program
    """Those whose parts stand together."""
    all: Program
    """All of them."""


def join_first(program: Program, costs: Costs) -> FirstWhole:
    """Both ways to join the parts of the first segment's backwards."""
    pairs = _pairs(program, costs, (costs.place_segment == 0) & (costs.joined_s > 0))
    together = _adjacent(pairs)
    near = _with_joined(program, together)
    return FirstWhole(near, near if len(together) == len(pairs) else _with_joined(program, pairs))


def join_where_it_pays(program: Program, costs: Costs, estimator: Estimator) -> Program:
    """The program with those pairs joined that stand together and whose joining does not make it slower."""
    pairs = _adjacent(_pairs(program, costs, costs.joined_s > 0))
    if not len(pairs):
        return program
    every = _with_joined(program, pairs)
    best, chosen = estimator.seconds(program), np.zeros(len(pairs), dtype=bool)
    if estimator.seconds(every) <= best:
        return every
    if len(pairs) * program.num_actions > EFFORT:
        return program
    for number in range(len(pairs)):
        chosen[number] = True
        seconds = estimator.seconds(_with_joined(program, pairs[chosen]))
        if seconds <= best:
            best = seconds
        else:
            chosen[number] = False
    return _with_joined(program, pairs[chosen])


def _pairs(program: Program, costs: Costs, wanted: npt.NDArray[np.bool_]) -> Pairs:
    """Where I and W of the wanted places stand, in the order of the program."""
    if not wanted.any() or not (program.kind == Kind.I).any():
        return np.empty((0, 2), dtype=np.int64)
    jobs = find_jobs(program, costs)
    pairs = np.stack([jobs.backward[wanted].ravel(), jobs.weights[wanted].ravel()], axis=1)
    parted: Pairs = pairs[(pairs != NONE).all(axis=1) & (pairs[:, 0] != pairs[:, 1])]
    return parted[np.argsort(parted[:, 0], kind="stable")]


def _adjacent(pairs: Pairs) -> Pairs:
    found: Pairs = pairs[pairs[:, 1] == pairs[:, 0] + 1]
    return found


def _with_joined(program: Program, pairs: Pairs) -> Program:
    """Each W becomes the whole backward, and its I is gone."""
    if not len(pairs):
        return program
    kind = program.kind.copy()
    kind[pairs[:, 1]] = Kind.B
    left = np.ones(program.num_actions, dtype=bool)
    left[pairs[:, 0]] = False
    counts = np.bincount(program.device_of[left], minlength=len(program.devices))
    return program_from_arrays(
        program.plan, program.devices, counts, kind[left], program.segment[left], program.microbatch[left]
    )
