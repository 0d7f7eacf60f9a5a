"""Compiled parts of the devices of `unreplicated.py`: what can pass between them, and what fits into them.

Import this module lazily: it compiles with numba. In all signatures, `num` is the number of micro-batches.
"""

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.planners.bounds.unreplicated_paths_kernel import Chain

NEGLIGIBLE = 1e-6


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def join(label: Ints, one: int, other: int) -> None:
    """Merge the parts of two devices. The label of a part is its first device."""
    low, high = min(label[one], label[other]), max(label[one], label[other])
    if low != high:
        for device in range(len(label)):
            if label[device] == high:
                label[device] = low


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _joined(
    before: Floats,
    job: Floats,
    num_bytes: float,
    num: int,
    next_job: Floats,
    after: Floats,
    net: Floats,
    limit_s: float,
) -> Ints:
    """Label the parts of the devices: two devices share one if the job's result can pass between them in time."""
    label = np.arange(len(job))
    for source in range(len(job)):
        done = before[source] + job[source]
        if done == np.inf:
            continue
        for target in range(len(next_job)):
            rest = net[0, source, target] + next_job[target] + after[target]
            if label[source] != label[target] and done + num * num_bytes * net[1, source, target] + rest <= limit_s:
                join(label, source, target)
    return label


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def joined_parts(paths: Floats, chain: Chain, saved: Floats, limit_s: float) -> Ints:
    """Labels [forward, backward, saved][unit, device] of the parts that transfers within the limit cannot leave.

    `forward` and `backward` refer to those jobs of units u and u + 1; `saved` refers to both directions of unit u,
    unless the backward's device recomputes its forward. `saved` has the bytes of the saved tensors of each unit.
    """
    forward, input_grad = chain.jobs[0], chain.jobs[1]
    cut, net, num = chain.cut, chain.net, chain.num_microbatches
    num_units, num_devices = forward.shape
    labels = np.empty((3, num_units, num_devices), np.int64)
    for unit in range(num_units):
        labels[:, unit] = np.arange(num_devices)
        if unit + 1 < num_units:
            labels[0, unit] = _joined(
                paths[0, unit],
                forward[unit],
                cut[unit],
                num,
                forward[unit + 1],
                paths[1, unit + 1],
                net,
                limit_s,
            )
            labels[1, unit] = _joined(
                paths[2, unit + 1],
                input_grad[unit + 1],
                cut[unit],
                num,
                input_grad[unit],
                paths[3, unit],
                net,
                limit_s,
            )
        if chain.remote_backward:
            labels[2, unit] = _joined(
                paths[0, unit],
                forward[unit],
                saved[unit],
                num,
                input_grad[unit],
                paths[3, unit],
                net,
                limit_s,
            )
    return labels


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def overfull(steps: Ints, turns: Ints, work: Floats, price: Floats, limit_s: float) -> bool:
    """Whether some run of units must stay in one part of the devices, and every such part is too slow for it.

    Args:
        steps: [unit, device] labels of the parts that units u and u + 1 share.
        turns: [unit, device] labels of the parts that both directions of unit u share.
        work: [unit] priced seconds.
        price: [device] price.
        limit_s: The iteration time in question.
    """
    num_units, num_devices = steps.shape
    for first in range(num_units):
        label = np.arange(num_devices)
        total = 0.0
        for unit in range(first, num_units):
            total += work[unit]
            for device in range(num_devices):
                join(label, device, turns[unit, device])
                if unit > first:
                    join(label, device, steps[unit - 1, device])
            if total > limit_s * np.bincount(label, price).max():
                return True
            if label.max() == 0:
                break
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def joined_over_all(steps: Ints, turns: Ints) -> Ints:
    """Labels of the parts that the whole model cannot leave."""
    label = np.arange(steps.shape[1])
    for unit in range(len(steps)):
        for device in range(len(label)):
            join(label, device, steps[unit, device])
            join(label, device, turns[unit, device])
    return label


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _crosses(label: Ints, part: Ints) -> bool:
    """Whether a label covers devices of different parts."""
    return bool((part != part[label]).any())


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def unpackable(
    back: Ints,
    saved: Ints,
    part: Ints,
    forward: Floats,
    backward: Floats,
    capacity: Floats,
    multiples: int,
    max_sizes: int,
) -> bool:
    """Whether the runs of units that each stay in one part do not all fit (the argument of `packing.py`).

    Args:
        back: [unit, device] labels of the backward, from `joined_parts`.
        saved: [unit, device] labels of the saved tensors, from `joined_parts`.
        part: [device] part of the division.
        forward: [unit] priced seconds of the forward.
        backward: [unit] priced seconds of the backward.
        capacity: [part] priced seconds within the limit.
        multiples: Number of scales to try per size.
        max_sizes: Number of sizes to try, the largest first.
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
    for index in range(min(max_sizes, count)):
        if items[index] <= NEGLIGIBLE * items[0]:
            break
        for multiple in range(1, multiples + 1):
            scale = multiple / items[index] * (1 + 1e-10)
            needed, offered = 0.0, 0.0
            for item in items:
                needed += np.floor(item * scale)
            for size in capacity:
                offered += np.floor(size * scale * (1 + 1e-9))
            if needed > offered:
                return True
    return False
