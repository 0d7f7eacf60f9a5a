"""The plain twin of `furthest_cuts`, the compiled step behind Bi-Partition's two sets of cuts."""

from collections.abc import Sequence

import numpy as np

from penstock.arrays import Floats


def plain_furthest_cuts(forward: Sequence[Floats], backward: Sequence[Floats], limit: float) -> list[list[int]]:
    """The furthest q for every p, before each stage and after the last; -1 where p is out of reach."""
    size = len(forward[0])
    reached = [[0, *[-1] * (size - 1)]]
    for ahead, back in zip(forward, backward, strict=True):
        furthest = []
        for p in range(size):
            most = max(
                (
                    back[reached[-1][before]] + ahead[before]
                    for before in range(p + 1)
                    if reached[-1][before] >= 0 and ahead[before] >= ahead[p] - limit
                ),
                default=-np.inf,
            )
            within = [q for q in range(size) if back[q] <= most + (limit - ahead[p])]
            furthest.append(max(within, default=-1) if np.isfinite(most) else -1)
        reached.append(furthest)
    return reached
