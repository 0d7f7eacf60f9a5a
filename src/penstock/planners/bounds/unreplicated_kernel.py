"""The compiled part of `bounds_straight.py`: where jobs can be in an iteration of so many seconds. Imported late."""

import numba
import numpy as np

from penstock.arrays import Floats, Ints

SWEEPS = 3
"""How often the ways are worked out anew without the jobs and transfers that turned out to be impossible."""

NEGLIGIBLE = 1e-6


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _reach(
    before: Floats, here: Floats, num_bytes: float, many: int, there: Floats, after: Floats, net: Floats, limit_s: float
) -> Floats:
    """The earliest that a micro-batch can be at each device of the next job; inf where it never can."""
    found = np.full(len(there), np.inf)
    for source in range(len(here)):
        done = before[source] + here[source]
        if done == np.inf:
            continue
        for target in range(len(there)):
            once = num_bytes * net[1, source, target]
            if done + many * once + net[0, source, target] + there[target] + after[target] <= limit_s:
                found[target] = min(found[target], done + once + net[0, source, target])
    return found


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _lead(
    before: Floats, here: Floats, num_bytes: float, many: int, there: Floats, after: Floats, net: Floats, limit_s: float
) -> Floats:
    """The least that must follow the job on each device; inf where nothing can."""
    found = np.full(len(here), np.inf)
    for source in range(len(here)):
        done = before[source] + here[source]
        if done == np.inf:
            continue
        for target in range(len(there)):
            once = num_bytes * net[1, source, target]
            rest = net[0, source, target] + there[target] + after[target]
            if done + many * once + rest <= limit_s:
                found[source] = min(found[source], once + rest)
    return found


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def narrow(
    ways: Floats,
    jobs: Floats,
    step: Floats,
    cut: Floats,
    turn: float,
    net: Floats,
    many: int,
    moved: bool,
    limit_s: float,
) -> bool:
    """Raise what comes before and after each job, for plans that take at most `limit_s`; False if there are none.

    ways: [F before, F after, I before, I after][unit, device], changed in place; jobs: [F, I, W][unit, device];
    net: [latency, seconds of a byte][from, to].
    """
    ahead, back, weights = jobs[0], jobs[1], jobs[2]
    last = len(cut) - 1
    for _ in range(SWEEPS):
        for unit in range(last + 1):
            possible = False
            for d in range(len(net[0])):
                f, i, w = ahead[unit, d], back[unit, d], weights[unit, d]
                forward = ways[0, unit, d] + many * f + ways[1, unit, d] <= limit_s
                backward = ways[2, unit, d] + many * i + ways[3, unit, d] <= limit_s
                backward = backward and ways[2, unit, d] + many * (i + w) + step[unit, d] <= limit_s
                if not moved:
                    both = ways[0, unit, d] + many * (f + i)
                    forward = backward = (
                        forward
                        and backward
                        and both + ways[3, unit, d] <= limit_s
                        and both + many * w + step[unit, d] <= limit_s
                    )
                if not forward:
                    ways[0, unit, d] = ways[1, unit, d] = np.inf
                if not backward:
                    ways[2, unit, d] = ways[3, unit, d] = np.inf
                possible = possible or forward
            if not possible or not (ways[2, unit] < np.inf).any():
                return False
        for unit in range(1, last + 1):
            found = _reach(
                ways[0, unit - 1], ahead[unit - 1], cut[unit - 1], many, ahead[unit], ways[1, unit], net, limit_s
            )
            ways[0, unit] = np.maximum(ways[0, unit], found)
        found = _reach(ways[0, last], ahead[last], turn, many, back[last], ways[3, last], net, limit_s)
        ways[2, last] = np.maximum(ways[2, last], found)
        for unit in range(last - 1, -1, -1):
            found = _reach(ways[2, unit + 1], back[unit + 1], cut[unit], many, back[unit], ways[3, unit], net, limit_s)
            ways[2, unit] = np.maximum(ways[2, unit], found)
        for unit in range(1, last + 1):
            found = _lead(
                ways[2, unit], back[unit], cut[unit - 1], many, back[unit - 1], ways[3, unit - 1], net, limit_s
            )
            ways[3, unit] = np.maximum(ways[3, unit], found)
        found = _lead(ways[0, last], ahead[last], turn, many, back[last], ways[3, last], net, limit_s)
        ways[1, last] = np.maximum(ways[1, last], found)
        for unit in range(last - 1, -1, -1):
            found = _lead(ways[0, unit], ahead[unit], cut[unit], many, ahead[unit + 1], ways[1, unit + 1], net, limit_s)
            ways[1, unit] = np.maximum(ways[1, unit], found)
    return True


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def join(label: Ints, one: int, other: int) -> None:
    """Make two devices' parts one; a part is called after its first device."""
    low, high = min(label[one], label[other]), max(label[one], label[other])
    if low != high:
        for place in range(len(label)):
            if label[place] == high:
                label[place] = low


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _joined(
    before: Floats, here: Floats, num_bytes: float, many: int, there: Floats, after: Floats, net: Floats, limit_s: float
) -> Ints:
    """The parts of the devices between which the job's result can go in time."""
    label = np.arange(len(here))
    for source in range(len(here)):
        done = before[source] + here[source]
        if done == np.inf:
            continue
        for target in range(len(there)):
            rest = net[0, source, target] + there[target] + after[target]
            if label[source] != label[target] and done + many * num_bytes * net[1, source, target] + rest <= limit_s:
                join(label, source, target)
    return label


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def parts_of(
    ways: Floats, jobs: Floats, cut: Floats, saved: Floats, net: Floats, many: int, moved: bool, limit_s: float
) -> Ints:
    """[forward, backward, saved][unit, device]: within which parts of the devices things stay.

    `forward` and `backward`: those jobs of units u and u + 1; `saved`: both directions of unit u, unless its forward
    is done again for the backward.
    """
    num_units, num_devices = jobs[0].shape
    labels = np.empty((3, num_units, num_devices), np.int64)
    ahead, back = jobs[0], jobs[1]
    for unit in range(num_units):
        labels[:, unit] = np.arange(num_devices)
        if unit + 1 < num_units:
            labels[0, unit] = _joined(
                ways[0, unit], ahead[unit], cut[unit], many, ahead[unit + 1], ways[1, unit + 1], net, limit_s
            )
            labels[1, unit] = _joined(
                ways[2, unit + 1], back[unit + 1], cut[unit], many, back[unit], ways[3, unit], net, limit_s
            )
        if moved:
            labels[2, unit] = _joined(
                ways[0, unit], ahead[unit], saved[unit], many, back[unit], ways[3, unit], net, limit_s
            )
    return labels


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def overfull(steps: Ints, turns: Ints, work: Floats, price: Floats, limit_s: float) -> bool:
    """Whether some run of units is held together in parts of the devices that are all too slow for it.

    steps: [unit, device] parts within which units u and u + 1 stay; turns: [unit, device] those for unit u itself;
    work: [unit] in priced seconds, price: [device].
    """
    num_units, num_devices = steps.shape
    for first in range(num_units):
        label = np.arange(num_devices)
        total = 0.0
        for unit in range(first, num_units):
            total += work[unit]
            for place in range(num_devices):
                join(label, place, turns[unit, place])
                if unit > first:
                    join(label, place, steps[unit - 1, place])
            if total > limit_s * np.bincount(label, price).max():
                return True
            if label.max() == 0:
                break
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def joined_over_all(steps: Ints, turns: Ints) -> Ints:
    """The parts within which the whole model stays."""
    label = np.arange(steps.shape[1])
    for unit in range(len(steps)):
        for place in range(len(label)):
            join(label, place, steps[unit, place])
            join(label, place, turns[unit, place])
    return label


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _crosses(label: Ints, part: Ints) -> bool:
    """Whether devices of different parts are joined."""
    return bool((part != part[label]).any())


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def unpackable(
    back: Ints, saved: Ints, part: Ints, forward: Floats, backward: Floats, room: Floats, multiples: int, most: int
) -> bool:
    """Whether the runs of units that each stay in one of the parts do not all fit into them (`bounds_packing.py`).

    back, saved: [unit, device] as from `parts_of`; forward, backward: [unit] priced seconds; room: [part] likewise.
    """
    num_units = len(forward)
    items = np.zeros(2 * num_units)
    count, run = 0, 0.0
    for unit in range(num_units):
        run += backward[unit]
        if _crosses(saved[unit], part):
            items[count] = forward[unit]
            count += 1
        else:
            run += forward[unit]
        if unit + 1 == num_units or _crosses(back[unit], part):
            items[count] = run
            count += 1
            run = 0.0
    items = np.sort(items[:count])[::-1]
    for place in range(min(most, count)):
        if items[place] <= NEGLIGIBLE * items[0]:
            break
        for multiple in range(1, multiples + 1):
            scale = multiple / items[place] * (1 + 1e-10)
            wanted, offered = 0.0, 0.0
            for item in items:
                wanted += np.floor(item * scale)
            for size in room:
                offered += np.floor(size * scale * (1 + 1e-9))
            if wanted > offered:
                return True
    return False
