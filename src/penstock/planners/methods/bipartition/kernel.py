"""The compiled steps of Bi-Partition's searches (cuts.py, priced_cuts.py). Import lazily: it compiles with numba."""

import numba
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints

NOT_REACHED = -1


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def furthest_cuts(forward: Floats, backward: Floats, limit: float) -> Ints:
    """The furthest q for every p, before each stage and after the last; see cuts.py.

    Both arrays have a row of running sums for each stage.
    """
    num_stages, size = forward.shape
    reached = np.full((num_stages + 1, size), NOT_REACHED)
    reached[0, 0] = 0
    value = np.empty(size)
    window = np.empty(size, np.int64)  # indices of the window whose values fall, so that the first is the largest
    for stage in range(num_stages):
        ahead, back, furthest = forward[stage], backward[stage], reached[stage]
        first, head, tail = 0, 0, 0
        for p in range(size):
            value[p] = back[furthest[p]] + ahead[p] if furthest[p] >= 0 else -np.inf
            while tail > head and value[window[tail - 1]] <= value[p]:
                tail -= 1
            window[tail] = p
            tail += 1
            while first < p and ahead[first] < ahead[p] - limit:
                first += 1
            while window[head] < first:
                head += 1
            most = value[window[head]]
            if most > -np.inf:
                reached[stage + 1, p] = np.searchsorted(back, most + (limit - ahead[p]), side="right") - 1
    return reached


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
