"""Balanced: contiguous stages with the least maximum of F + I + W, each on its own device at its own speed.

The least limit that can be met is found by bisection, tightened to the maximum of the cuts that each try gives. Filling
every stage as far as a limit allows (while leaving a unit for each that follows) gets furthest; where every unit fits
everywhere, a limit can be met if and only if that reaches the end. Where a unit is too long for a slow device, going as
far as possible may end right in front of it: then all cuts that can be reached are worked out, stage by stage.
Where one unit is large, many cuts meet the limit; so each cut is then moved to where the slower of its two neighbours
is fastest, until none moves. Communication is left aside.

Cost: O(stages log units) for each limit tried, about 60 of them; O(stages units) for those with such units.
"""

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Floats
from penstock.plan import Plan
from penstock.planners.problem import Problem

MOST_HALVINGS = 200
MOST_ROUNDS = 100
ROUNDING = 1e-12
"""More than differences of sums of this kind are off by."""


def balanced(problem: Problem) -> Plan:
    """The cuts whose slowest stage is fastest."""
    return problem.pipeline("balanced", balanced_cuts([problem.clock.work(lane) for lane in problem.lanes]))


def balanced_cuts(work: Sequence[Floats]) -> list[int]:
    """Cuts with the least maximum; work[k] are the running sums of the units' seconds on the device of stage k.

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
    # No limit below what the largest unit takes where it is fastest can be met.
    low = float(seconds.min(axis=0).max()) * (1 - ROUNDING)
    for _ in range(MOST_HALVINGS):
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
    """The cuts that reach furthest with no stage over the limit; None if they do not reach the end."""
    num_units = len(work[0]) - 1
    cuts = [0]
    for place, sums in enumerate(work):
        reach = int(np.searchsorted(sums, sums[cuts[-1]] + limit, side="right")) - 1
        cuts.append(min(reach, num_units - (len(work) - 1 - place)))
        if cuts[-1] <= cuts[-2]:
            return None
    return cuts if cuts[-1] == num_units else None


def _search(work: Sequence[Floats], limit: float) -> list[int] | None:
    """Cuts with no stage over the limit, found among all that can be reached; None if there are none."""
    num_units = len(work[0]) - 1
    reached = np.zeros((len(work) + 1, num_units + 1), dtype=bool)
    reached[0, 0] = True
    reaches = []
    for place, sums in enumerate(work):
        reaches.append(np.searchsorted(sums, sums + limit, side="right") - 1)
        # A stage from `start` may end anywhere behind it, up to its reach: counted as +1 and -1 at both ends.
        start = np.flatnonzero(reached[place] & (reaches[-1] > np.arange(num_units + 1)))
        ends = np.zeros(num_units + 2, dtype=np.int64)
        np.add.at(ends, start + 1, 1)
        np.add.at(ends, reaches[-1][start] + 1, -1)
        reached[place + 1] = np.cumsum(ends)[:-1] > 0
    if not reached[-1, -1]:
        return None
    cuts = [num_units]
    for place in reversed(range(len(work))):
        before = reached[place, : cuts[-1]] & (reaches[place][: cuts[-1]] >= cuts[-1])
        cuts.append(int(np.flatnonzero(before)[-1]))
    return cuts[::-1]


def _even_out(work: Sequence[Floats], cuts: list[int]) -> list[int]:
    """Move each cut to where the slower of its two stages is fastest, until no cut moves any more."""
    cuts = list(cuts)
    for _ in range(MOST_ROUNDS):
        before = list(cuts)
        for place in range(1, len(work)):
            left, right = work[place - 1], work[place]
            start, stop = cuts[place - 1], cuts[place + 1]
            both = left[start + 1 : stop] + right[start + 1 : stop]
            even = start + 1 + int(np.searchsorted(both, left[start] + right[stop]))
            near = [cut for cut in (cuts[place], even - 1, even) if start < cut < stop]
            cuts[place] = min(near, key=lambda cut: max(left[cut] - left[start], right[stop] - right[cut]))
        if cuts == before:
            break
    return cuts


def _slowest(work: Sequence[Floats], cuts: Sequence[int]) -> float:
    return max(float(sums[cuts[place + 1]] - sums[cuts[place]]) for place, sums in enumerate(work))
