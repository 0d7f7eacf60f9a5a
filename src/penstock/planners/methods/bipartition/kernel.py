"""The compiled step of Bi-Partition's search with prices. See bipartition_prices.py."""

import numba
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def reach_joints(
    ended: Floats, begun: Floats, load: Floats, best: Floats, limit: float
) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Which joints [again, p, q] end a stage within the limit, and what is then done at most up to each cut.

    `best` has, for each cut, the most that is done where the stage begins, over all joints up to it.
    """
    size = len(best)
    reached = np.zeros((2, size, size), np.bool_)
    most = np.full(size, -np.inf)
    for again in range(2):
        for p in range(size):
            for q in range(size):
                nearest, furthest = min(p, q), max(p, q)
                if load[again, p, q] <= limit and ended[again, p, q] - best[nearest] <= limit:
                    reached[again, p, q] = True
                    most[furthest] = max(most[furthest], begun[again, p, q])
    for cut in range(1, size):
        most[cut] = max(most[cut], most[cut - 1])
    return reached, most
