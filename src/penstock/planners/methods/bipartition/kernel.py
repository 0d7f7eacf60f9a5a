"""The compiled step of Bi-Partition's search with prices (priced_cuts.py). Import lazily: it compiles with numba."""

import numba
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def reach_joints(
    ended: Floats, begun: Floats, load: Floats, best: Floats, limit: float
) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Which joints [recompute, p, q] end a stage within the limit, and the most work done at joints up to each cut.

    `best` holds for each cut the most work that is done where the stage begins, over all joints up to that cut.
    """
    size = len(best)
    reached = np.zeros((2, size, size), np.bool_)
    most = np.full(size, -np.inf)
    for recompute in range(2):
        for p in range(size):
            for q in range(size):
                nearest, furthest = min(p, q), max(p, q)
                if load[recompute, p, q] <= limit and ended[recompute, p, q] - best[nearest] <= limit:
                    reached[recompute, p, q] = True
                    most[furthest] = max(most[furthest], begun[recompute, p, q])
    for cut in range(1, size):
        most[cut] = max(most[cut], most[cut - 1])
    return reached, most
