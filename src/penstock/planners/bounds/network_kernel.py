"""The compiled part of `bounds_network.py`: whether units can be divided over parts of the devices. Imported late."""

import numba
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _outside(forward: float, backward: float, room: float, moved: bool) -> float:
    """How many directions' worth of rows are at least outside of a part that has room for so much of a run's work."""
    room = max(room, 0.0)
    if not moved:
        both = forward + backward
        return 2 * max(0.0, 1 - room / both) if both > 0 else 0.0
    small, large = min(forward, backward), max(forward, backward)
    if room < small:
        return 2 - room / small
    return max(0.0, 1 - (room - small) / large) if large > 0 else 0.0


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def divisible(
    home: Floats,
    forward: Floats,
    backward: Floats,
    crossing: Floats,
    spread_bytes: Floats,
    release_s: Floats,
    can_spread: npt.NDArray[np.bool_],
    moved: bool,
    room: float,
    pair_bytes: float,
    part_bytes: float,
    limit_s: float,
    all_rate: float,
) -> bool:
    """Whether some division into units at home in one part and units that are not keeps to all limits.

    home: [unit] priced seconds that it takes at home; forward, backward: what counts of it elsewhere; crossing:
    [unit] bytes of one direction of all micro-batches behind it;
    spread_bytes: [unit] that pass if it is not at home, after release_s; room: priced seconds of a part; pair_bytes:
    that pass from part to part, part_bytes: in and out of one, all_rate: in and out of all, a second.
    """
    last = len(forward) - 1
    # held[u]: the least bytes in and out of the part of a run of units at home that ends with u, from its left side.
    held = np.full(last + 1, np.inf)
    entering = np.full(last + 2, np.inf)
    entering[0] = 0.0
    for unit in range(last + 1):
        total = 0.0
        for first in range(unit, -1, -1):
            total += home[first]
            if total > room:
                break
            held[unit] = min(held[unit], entering[first])
        if unit < last and crossing[unit] <= pair_bytes and held[unit] + 2 * crossing[unit] <= part_bytes:
            entering[unit + 1] = min(entering[unit + 1], 2 * crossing[unit])
        passed, ahead, back = 0.0, 0.0, 0.0
        least, second = np.inf, np.inf
        if unit < last:
            least = crossing[unit]
        for first in range(unit, -1, -1):
            passed += spread_bytes[first]
            if not can_spread[first] or passed > (limit_s - release_s[unit]) * all_rate:
                break
            ahead += forward[first]
            back += backward[first]
            right = room - home[unit + 1] if unit < last else room
            if first == 0:
                if unit == last:
                    return True
                from_left = _outside(ahead, back, right, moved) * least
            else:
                edge = crossing[first - 1]
                if edge < least:
                    least, second = edge, least
                elif edge < second:
                    second = edge
                outside = _outside(ahead, back, right - home[first - 1], moved)
                if unit == last:
                    if held[first - 1] + outside * least <= part_bytes:
                        return True
                    continue
                from_left = held[first - 1] + outside * (least + second)
                if held[first - 1] + 2 * least <= part_bytes:
                    from_left = min(from_left, 2 * least)
            if from_left <= part_bytes:
                entering[unit + 1] = min(entering[unit + 1], from_left)
    return bool(held[last] <= part_bytes)
