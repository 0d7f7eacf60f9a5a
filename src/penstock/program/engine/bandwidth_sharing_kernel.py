"""How transfers that pass at the same time share network interfaces: evenly, as connections of a network do.

All get the same bytes a second, but those that their own links or other interfaces hold below that; what they leave
goes to the others (max-min fairness, by filling all up together until something is full). The same, but for a
thousandth: whoever began first has that much more. Real connections never share to the last bit, and it matters:
devices in exact step would be in each other's way at every message, while the least difference grows from message to
message until they have fallen out of step.
"""

import numba
import numpy as np

from penstock.arrays import Floats, Ints

UNEVEN = 1e-3
"""By so much more than the next does each get that began before it."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def share(
    num_passing: int,
    passing: Ints,
    speed: Floats,
    num_bytes: Floats,
    occupancy: Floats,
    interface_begin: Ints,
    interface_values: Ints,
    interface_seconds: Floats,
    room: Floats,
    need: Floats,
) -> None:
    """Work out the speeds of the transfers that pass: parts of that which they would have alone.

    `room` and `need` have an entry for each direction of each interface, and are written over.
    """
    room[:] = 1.0
    speed[:num_passing] = -1.0
    num_open, rate = num_passing, 0.0
    while num_open > 0:
        need[:] = 0.0
        for index in range(num_passing):
            if speed[index] < 0.0:
                transfer = passing[index]
                weight = 1.0 + UNEVEN * (num_passing - 1 - index)
                for entry in range(interface_begin[transfer], interface_begin[transfer + 1]):
                    need[interface_values[entry]] += interface_seconds[entry] / num_bytes[transfer] * weight
        least = np.inf
        for index in range(num_passing):
            if speed[index] < 0.0:
                transfer = passing[index]
                weight = 1.0 + UNEVEN * (num_passing - 1 - index)
                least = min(least, num_bytes[transfer] / occupancy[transfer] / weight)
                for entry in range(interface_begin[transfer], interface_begin[transfer + 1]):
                    use = interface_values[entry]
                    least = min(least, room[use] / need[use])
        # It can only rise, but for rounding.
        rate = max(rate, least)
        for index in range(num_passing):
            if speed[index] < 0.0:
                transfer = passing[index]
                alone = num_bytes[transfer] / occupancy[transfer]
                is_full = alone / (1.0 + UNEVEN * (num_passing - 1 - index)) <= rate
                for entry in range(interface_begin[transfer], interface_begin[transfer + 1]):
                    use = interface_values[entry]
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
                for entry in range(interface_begin[transfer], interface_begin[transfer + 1]):
                    room[interface_values[entry]] -= given * (interface_seconds[entry] / num_bytes[transfer])
                num_open -= 1
