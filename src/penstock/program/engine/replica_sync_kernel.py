"""The compiled twin of `count_waits_plainly`."""

import numba
import numpy as np

from penstock.arrays import Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def count_waits_compiled(begin: Ints, after: Ints, num_waits: Ints) -> Ints:
    """Count what each node of a graph still waits for when all that can complete has completed."""
    waits = num_waits.copy()
    ready = np.empty(len(waits), dtype=np.int64)
    num_ready = 0
    for node in range(len(waits)):
        if waits[node] == 0:
            ready[num_ready] = node
            num_ready += 1
    while num_ready > 0:
        num_ready -= 1
        node = ready[num_ready]
        for entry in range(begin[node], begin[node + 1]):
            then = after[entry]
            waits[then] -= 1
            if waits[then] == 0:
                ready[num_ready] = then
                num_ready += 1
    return waits
