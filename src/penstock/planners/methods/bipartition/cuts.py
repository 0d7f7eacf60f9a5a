"""Two sets of cuts: forward cuts p_0 <= p_1 <= ... and backward cuts q_0 <= q_1 <= ..., chosen together.

Stage k runs the forward of layers p[k] up to p[k + 1] and the backward of layers q[k] up to q[k + 1]. If only compute
counts, a further q is better for a given p, so for a bottleneck T it suffices to compute the furthest reachable q for
every p, stage by stage: from p' a stage reaches p and the last q with B(q', q) <= T - F(p', p), that is the last one
whose running sum is at most B(q') + F(p') + T - F(p). Of the p' with F(p', p) <= T (a window that moves with p), the
one with the largest B(q') + F(p') reaches furthest. Stages may be empty.

Cost: O(stages layers log layers) for each T, about 60 of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints

MAX_HALVINGS = 200
ROUNDING = 1e-12
"""More than the rounding error of running sums."""


class TwoSets(NamedTuple):
    """Forward and backward cuts, from 0 to the number of layers; stage k lies between entries k and k + 1."""

    forward: list[int]
    backward: list[int]


def two_sets_of_cuts(forward: Sequence[Floats], backward: Sequence[Floats]) -> TwoSets:
    """Cuts with the least maximum of forward + backward seconds, without communication.

    forward[k] and backward[k] are running sums of the layers' seconds on the device of stage k. Of the cuts with the
    least maximum, the result has forward and backward cuts close to each other.

    >>> ones = [np.array([0.0, 1, 2, 3])] * 2
    >>> two_sets_of_cuts(ones, ones)
    TwoSets(forward=[0, 1, 3], backward=[0, 2, 3])
    """
    everything = max(float(sums[-1]) for sums in forward) + max(float(sums[-1]) for sums in backward)
    high = everything * (1 + ROUNDING)
    reached = _reach(forward, backward, high)
    assert reached is not None, "a stage that takes everything meets its own limit"
    best = _trace(forward, backward, high, reached)
    high = min(high, bottleneck(forward, backward, best))
    low = 0.0
    for _ in range(MAX_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high * (1 - ROUNDING):
            break
        reached = _reach(forward, backward, middle)
        if reached is None:
            low = middle
            continue
        cuts = _trace(forward, backward, middle, reached)
        slowest = bottleneck(forward, backward, cuts)
        best = cuts if slowest <= bottleneck(forward, backward, best) else best
        high = min(middle, slowest)
    return best


def bottleneck(forward: Sequence[Floats], backward: Sequence[Floats], cuts: TwoSets) -> float:
    """Seconds per micro-batch of the slowest stage."""
    p, q = cuts
    return max(
        float(ahead[p[k + 1]] - ahead[p[k]] + back[q[k + 1]] - back[q[k]])
        for k, (ahead, back) in enumerate(zip(forward, backward, strict=True))
    )


def _reach(forward: Sequence[Floats], backward: Sequence[Floats], limit: float) -> Ints | None:
    """The furthest q for every p, before each stage and after the last; None if the end is out of reach."""
    from penstock.planners.methods.bipartition.kernel import furthest_cuts

    reached = furthest_cuts(np.asarray(forward), np.asarray(backward), limit)
    return reached if reached[-1, -1] == reached.shape[1] - 1 else None


def _trace(forward: Sequence[Floats], backward: Sequence[Floats], limit: float, reached: Ints) -> TwoSets:
    """Trace the cuts from the end, with each q as close to its p as possible, so that few backwards are remote.

    Every q before the furthest one can be reached as well.
    """
    p = q = len(forward[0]) - 1
    cuts = TwoSets([p], [q])
    for stage in reversed(range(len(forward))):
        ahead, back, furthest = forward[stage], backward[stage], reached[stage]
        start = np.arange(p + 1)
        most = np.minimum(furthest[: p + 1], q)
        left = limit - (ahead[p] - ahead[: p + 1])
        least = np.searchsorted(back[: q + 1], back[q] - left, side="left")
        near = np.clip(start, np.minimum(least, most), most)
        over = np.where(most < 0, np.inf, back[q] - back[near] - left)
        # Rounding may leave none within the limit; then take those that exceed it least.
        fits = np.flatnonzero(over <= max(0.0, float(over.min())))
        p = int(fits[np.argmin(np.abs(near[fits] - fits))])
        q = int(near[p])
        cuts.forward.append(p)
        cuts.backward.append(q)
    return TwoSets(cuts.forward[::-1], cuts.backward[::-1])
