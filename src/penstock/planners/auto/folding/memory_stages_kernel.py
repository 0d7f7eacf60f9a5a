"""The compiled dynamic programming over unequal ranks. See memory_stages.py."""

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.planners.auto.folding.memory_stages import CLOSE, Chain, Limits


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_divide(chain: Chain, ways: Ints, num: int, limits: Limits) -> tuple[Floats, Ints, Ints]:
    """Over first layers and devices: the least sum of seconds, where the first rank stops, and its way.

    `ways` has rows of the index of a number of replicas, that number, and whether the rank is recomputed.
    """
    size = chain.work.shape[1] - 1
    rest = np.full((size + 1, num + 1), np.inf)
    rest[size] = 0.0
    stops = np.zeros((size + 1, num + 1), np.int64)
    chosen = np.zeros((size + 1, num + 1), np.int64)
    for start in range(size - 1, -1, -1):
        for way in range(len(ways)):
            index, count, recompute = ways[way, 0], ways[way, 1], ways[way, 2] > 0
            for stop in range(start + 1, size + 1):
                seconds = chain.work[index, stop] - chain.work[index, start]
                saved = chain.saved[index, stop] - chain.saved[index, start]
                static = chain.static[index, stop] - chain.static[index, start]
                inputs = chain.starting[index, start] + chain.stopping[index, stop]
                if recompute:
                    seconds += chain.forward[index, stop] - chain.forward[index, start]
                if seconds > limits.seconds or static > limits.bytes:
                    break
                for left in range(count, num + 1):
                    behind = rest[stop, left - count]
                    if behind + seconds >= rest[start, left]:
                        continue
                    kept = limits.kept + limits.kept_behind * np.ceil(behind / limits.seconds - CLOSE)
                    kept = min(float(limits.num_microbatches), kept)
                    needed = static + (kept * inputs + saved if recompute else kept * saved)
                    if needed <= limits.bytes:
                        rest[start, left] = behind + seconds
                        stops[start, left], chosen[start, left] = stop, way
    return rest, stops, chosen
