"""Balanced: contiguous stages that minimize the maximum of F + I + W, each on its own device at its own speed.

Bisection finds the least feasible limit, tightened to the maximum of the cuts that each attempt gives. Filling every
stage as far as a limit allows (while leaving a layer for each later stage) reaches furthest; if every layer fits on
every device, a limit is feasible if and only if this reaches the end. If a layer is too long for a slow device, filling
may stop right in front of it; then a search computes all reachable cuts stage by stage. If one layer is large, many
cuts meet the limit; so each cut finally moves to where the slower of its two stages is fastest, until none moves.
Communication is ignored.

Cost: O(stages log layers) for each limit, about 60 of them; O(stages layers) for limits with such long layers.
"""

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Floats
from penstock.plan import Plan
from penstock.planners.problem import Problem

MAX_HALVINGS = 200
MAX_ROUNDS = 100
ROUNDING = 1e-12
"""More than the rounding error of differences of running sums."""


def balanced(problem: Problem) -> Plan:
    """Cut the model so that the slowest stage is as fast as possible."""
    return problem.pipeline("balanced", balanced_cuts([problem.clock.work(device) for device in problem.stage_devices]))


def balanced_cuts(work: Sequence[Floats]) -> list[int]:
    """Cuts with the least maximum; work[k] holds running sums of the layers' seconds on the device of stage k.

    >>> balanced_cuts([np.array([0.0, 1, 2, 3, 6])] * 2)
    [0, 3, 4]
    >>> balanced_cuts([np.array([0.0, 1, 2, 3, 4, 9])] * 3)
    [0, 2, 4, 5]
    """
    high = max(float(sums[-1]) for sums in work)
    best = _fill(work, high)
    assert best is not None, "a stage that takes everything meets its own limit"
    high = _slowest(work, best)
    seconds = np.diff(np.array(work), axis=1)
    longest = float(seconds.max())
    # A limit below the seconds of the largest layer on its fastest device is infeasible.
    low = float(seconds.min(axis=0).max()) * (1 - ROUNDING)
    for _ in range(MAX_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        cuts = _fill(work, middle)
        if cuts is None and middle < longest:
            cuts = _search(work, middle)
        if cuts is None:
            low = middle
        else:
            best, high = cuts, min(middle, _slowest(work, cuts))
    return _even_out(work, best)


def _fill(work: Sequence[Floats], limit: float) -> list[int] | None:
    """The cuts that reach furthest without a stage over the limit; None if they do not reach the end."""
    num_units = len(work[0]) - 1
    cuts = [0]
    for stage, sums in enumerate(work):
        reach = int(np.searchsorted(sums, sums[cuts[-1]] + limit, side="right")) - 1
        cuts.append(min(reach, num_units - (len(work) - 1 - stage)))
        if cuts[-1] <= cuts[-2]:
            return None
    return cuts if cuts[-1] == num_units else None


def _search(work: Sequence[Floats], limit: float) -> list[int] | None:
    """Cuts without a stage over the limit, from all reachable ones; None if there are none."""
    num_units = len(work[0]) - 1
    reached = np.zeros((len(work) + 1, num_units + 1), dtype=bool)
    reached[0, 0] = True
    reaches = []
    for stage, sums in enumerate(work):
        reaches.append(np.searchsorted(sums, sums + limit, side="right") - 1)
        # A stage from `start` may end anywhere behind it, up to its reach: add +1 and -1 at the ends of that range.
        start = np.flatnonzero(reached[stage] & (reaches[-1] > np.arange(num_units + 1)))
        begun = np.bincount(start + 1, minlength=num_units + 2)
        ended = np.bincount(reaches[-1][start] + 1, minlength=num_units + 2)
        reached[stage + 1] = np.cumsum(begun - ended)[:-1] > 0
    if not reached[-1, -1]:
        return None
    cuts = [num_units]
    for stage in reversed(range(len(work))):
        before = reached[stage, : cuts[-1]] & (reaches[stage][: cuts[-1]] >= cuts[-1])
        cuts.append(int(np.flatnonzero(before)[-1]))
    return cuts[::-1]


def _even_out(work: Sequence[Floats], cuts: list[int]) -> list[int]:
    """Move each cut to where the slower of its two stages is fastest, until no cut moves."""
    cuts = list(cuts)
    for _ in range(MAX_ROUNDS):
        before = list(cuts)
        for stage in range(1, len(work)):
            left, right = work[stage - 1], work[stage]
            start, stop = cuts[stage - 1], cuts[stage + 1]
            both = left[start + 1 : stop] + right[start + 1 : stop]
            even = start + 1 + int(np.searchsorted(both, left[start] + right[stop]))
            near = [cut for cut in (cuts[stage], even - 1, even) if start < cut < stop]
            cuts[stage] = min(near, key=lambda cut: max(left[cut] - left[start], right[stop] - right[cut]))
        if cuts == before:
            break
    return cuts


def _slowest(work: Sequence[Floats], cuts: Sequence[int]) -> float:
    return max(float(sums[cuts[stage + 1]] - sums[cuts[stage]]) for stage, sums in enumerate(work))
