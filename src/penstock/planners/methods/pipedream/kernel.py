"""The compiled step of PipeDream's dynamic program; imported late."""

import numba
import numpy as np

from penstock.arrays import Floats, Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def append_stage(starts: Ints, before: Floats, stage: Floats, is_shrinking: bool) -> tuple[Floats, Ints]:
    """Over starts and ends: the least max(before[start, cut], stage[cut, end]), and the cut that gives it.

    Where stages are never longer for a later cut (`is_shrinking`), the search, which goes back from the end, stops when
    the stage alone is too long.
    """
    num_replicas = stage.shape[0]
    best = np.full((len(starts), num_replicas), np.inf)
    cuts = np.full((len(starts), num_replicas), -1, dtype=np.int64)
    for row in range(len(starts)):
        for end in range(starts[row] + 2, num_replicas):
            least, at = np.inf, -1
            for cut in range(end - 1, starts[row], -1):
                own = stage[cut, end]
                if own >= least and is_shrinking:
                    break
                value = max(before[row, cut], own)
                if value < least:
                    least, at = value, cut
            best[row, end], cuts[row, end] = least, at
    return best, cuts
