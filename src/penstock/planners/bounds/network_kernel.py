"""The compiled dynamic program of `network.py`: whether some division of the layers over parts meets all limits.

Import this module lazily: it compiles with numba. `tests/support/plain_bounds.py` holds the plain twin.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Bools, Floats


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _outside(forward: float, backward: float, capacity: float, remote_backward: bool) -> float:
    """The least rows of a run outside a part with this capacity, in units of all rows of one direction (0 to 2)."""
    capacity = max(capacity, 0.0)
    if not remote_backward:
        both = forward + backward
        return 2 * max(0.0, 1 - capacity / both) if both > 0 else 0.0
    small, large = min(forward, backward), max(forward, backward)
    if capacity < small:
        return 2 - capacity / small
    return max(0.0, 1 - (capacity - small) / large) if large > 0 else 0.0


class Layers(NamedTuple):
    """Arrays over units: what each costs if it is local, that is in one part, or spread over several."""

    local_work: Floats
    """Priced seconds of a local layer."""
    forward: Floats
    """Priced seconds of a spread layer's forward."""
    backward: Floats
    """Priced seconds of a spread layer's backward."""
    crossing: Floats
    """Bytes of one direction behind the layer, for all micro-batches."""
    spread_bytes: Floats
    """Bytes between parts, after `release_s`, if the layer is spread."""
    release_s: Floats
    """The earliest start of those transfers."""
    can_spread: Bools
    """Whether they can end within the limit."""


class Limits(NamedTuple):
    """What fits into the iteration time in question."""

    seconds: float
    """That time."""
    capacity: float
    """Priced seconds of the best part."""
    pair_bytes: float
    """Bytes that can pass from one part to another."""
    part_bytes: float
    """Bytes that can pass in and out of one part."""
    all_rate: float
    """Bytes per second in and out of all parts."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def is_divisible(layers: Layers, limits: Limits, remote_backward: bool) -> bool:
    """Whether some division of the layers into local and spread ones meets all limits.

    With `remote_backward`, a row's backward may be in another part than its forward.
    """
    local_work, forward, backward, crossing = layers.local_work, layers.forward, layers.backward, layers.crossing
    capacity, part_bytes = limits.capacity, limits.part_bytes
    last = len(forward) - 1
    # held[u]: the least bytes in and out of the part, on the left side, for a run of local layers that ends with u.
    # entering[u]: the same for runs that begin with u.
    held = np.full(last + 1, np.inf)
    entering = np.full(last + 2, np.inf)
    entering[0] = 0.0
    for unit in range(last + 1):
        total = 0.0
        for first in range(unit, -1, -1):
            total += local_work[first]
            if total > capacity:
                break
            held[unit] = min(held[unit], entering[first])
        if unit < last and crossing[unit] <= limits.pair_bytes and held[unit] + 2 * crossing[unit] <= part_bytes:
            entering[unit + 1] = min(entering[unit + 1], 2 * crossing[unit])
        sent_bytes, ahead, back = 0.0, 0.0, 0.0
        least, second = np.inf, np.inf
        if unit < last:
            least = crossing[unit]
        for first in range(unit, -1, -1):
            sent_bytes += layers.spread_bytes[first]
            left_s = limits.seconds - layers.release_s[unit]
            if not layers.can_spread[first] or sent_bytes > left_s * limits.all_rate:
                break
            ahead += forward[first]
            back += backward[first]
            right = capacity - local_work[unit + 1] if unit < last else capacity
            if first == 0:
                if unit == last:
                    return True
                from_left = _outside(ahead, back, right, remote_backward) * least
            else:
                edge = crossing[first - 1]
                if edge < least:
                    least, second = edge, least
                elif edge < second:
                    second = edge
                outside = _outside(ahead, back, right - local_work[first - 1], remote_backward)
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
