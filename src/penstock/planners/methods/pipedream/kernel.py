"""The compiled step of PipeDream's dynamic program. Import this module lazily: it compiles with numba."""

import numba
import numpy as np

from penstock.arrays import Floats, Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def append_stage(starts: Ints, before: Floats, stage: Floats, is_shrinking: bool) -> tuple[Floats, Ints]:
    """For all starts and ends: the least max(before[start, cut], stage[cut, end]), and the cut that gives it.

    If stages are never longer for a later cut (`is_shrinking`), the search, which runs backward from the end, stops
    when the stage alone is too long.
    """
    num_cuts = stage.shape[0]
    best = np.full((len(starts), num_cuts), np.inf)
    cuts = np.full((len(starts), num_cuts), -1, dtype=np.int64)
    for row in range(len(starts)):
        for end in range(starts[row] + 2, num_cuts):
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
