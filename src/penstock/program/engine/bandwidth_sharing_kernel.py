"""Bandwidth sharing of concurrent transfers over network interfaces: max-min fairness.

All transfers get the same bandwidth, except those that their own links or other interfaces limit further; their unused
part goes to the others. An earlier transfer gets a thousandth more. Real connections never share exactly, and this
matters: devices in exact lockstep would collide at every message, while the smallest difference grows from message to
message until they are out of step.
"""

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program.dependencies import Dependencies

UNEVEN = 1e-3
"""The factor by which an earlier transfer gets more than the next."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def share(
    num_passing: int, passing: Ints, speed: Floats, dependencies: Dependencies, room: Floats, need: Floats
) -> None:
    """The speeds of concurrent transfers, as fractions of their speeds when alone.

    `room` and `need` have an entry for each direction of each interface, and are overwritten.
    """
    num_bytes, occupancy = dependencies.num_bytes, dependencies.occupancy_s
    interfaces, interface_s = dependencies.interfaces, dependencies.interface_s
    room[:] = 1.0
    speed[:num_passing] = -1.0
    num_open, rate = num_passing, 0.0
    while num_open > 0:
        need[:] = 0.0
        for index in range(num_passing):
            if speed[index] < 0.0:
                transfer = passing[index]
                weight = 1.0 + UNEVEN * (num_passing - 1 - index)
                for entry in range(interfaces.begin[transfer], interfaces.begin[transfer + 1]):
                    need[interfaces.values[entry]] += interface_s[entry] / num_bytes[transfer] * weight
        least = np.inf
        for index in range(num_passing):
            if speed[index] < 0.0:
                transfer = passing[index]
                weight = 1.0 + UNEVEN * (num_passing - 1 - index)
                least = min(least, num_bytes[transfer] / occupancy[transfer] / weight)
                for entry in range(interfaces.begin[transfer], interfaces.begin[transfer + 1]):
                    use = interfaces.values[entry]
                    least = min(least, room[use] / need[use])
        # It can only rise, but for rounding.
        rate = max(rate, least)
        for index in range(num_passing):
            if speed[index] < 0.0:
                transfer = passing[index]
                alone = num_bytes[transfer] / occupancy[transfer]
                is_full = alone / (1.0 + UNEVEN * (num_passing - 1 - index)) <= rate
                for entry in range(interfaces.begin[transfer], interfaces.begin[transfer + 1]):
                    use = interfaces.values[entry]
                    is_full = is_full or room[use] / need[use] <= rate
                if is_full:
                    # Marked for now: what is full must not change while this is looked for.
                    speed[index] = -2.0
        for index in range(num_passing):
            if speed[index] == -2.0:
                transfer = passing[index]
                alone = num_bytes[transfer] / occupancy[transfer]
                given = min(rate * (1.0 + UNEVEN * (num_passing - 1 - index)), alone)
                speed[index] = given / alone
                for entry in range(interfaces.begin[transfer], interfaces.begin[transfer + 1]):
                    room[interfaces.values[entry]] -= given * (interface_s[entry] / num_bytes[transfer])
                num_open -= 1
