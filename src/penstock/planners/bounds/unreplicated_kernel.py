"""Compiled feasibility checks of `unreplicated.py`: which device can run which job within a time limit.

Import this module lazily: it compiles with numba. In all signatures, `num` is the number of micro-batches.
"""

import numba
import numpy as np

from penstock.arrays import Floats, Ints

SWEEPS = 3
"""How often `narrow` recomputes the shortest paths without the jobs and transfers that it found to be impossible."""

NEGLIGIBLE = 1e-6


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _earliest_arrival(
    before: Floats,
    job: Floats,
    num_bytes: float,
    num: int,
    next_job: Floats,
    after: Floats,
    net: Floats,
    limit_s: float,
) -> Floats:
    """The earliest arrival of a micro-batch at each device of the next job; inf if no transfer meets the limit."""
    earliest = np.full(len(next_job), np.inf)
    for source in range(len(job)):
        done = before[source] + job[source]
        if done == np.inf:
            continue
        for target in range(len(next_job)):
            once = num_bytes * net[1, source, target]
            if done + num * once + net[0, source, target] + next_job[target] + after[target] <= limit_s:
                earliest[target] = min(earliest[target], done + once + net[0, source, target])
    return earliest


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _least_remainder(
    before: Floats,
    job: Floats,
    num_bytes: float,
    num: int,
    next_job: Floats,
    after: Floats,
    net: Floats,
    limit_s: float,
) -> Floats:
    """The least time that must follow the job on each device; inf if no transfer meets the limit."""
    least = np.full(len(job), np.inf)
    for source in range(len(job)):
        done = before[source] + job[source]
        if done == np.inf:
            continue
        for target in range(len(next_job)):
            once = num_bytes * net[1, source, target]
            rest = net[0, source, target] + next_job[target] + after[target]
            if done + num * once + rest <= limit_s:
                least[source] = min(least[source], once + rest)
    return least


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def narrow(
    paths: Floats,
    jobs: Floats,
    step: Floats,
    cut: Floats,
    turn_bytes: float,
    net: Floats,
    num: int,
    remote_backward: bool,
    limit_s: float,
) -> bool:
    """Tighten the shortest paths for plans that take at most `limit_s` seconds.

    A device that cannot run a job in time leaves the paths of that job, and so do transfers that cannot finish in time.
    Each sweep may make more of them impossible.

    Args:
        paths: [F before, F after, I before, I after][unit, device]; changed in place.
        jobs: [F, I, W][unit, device] seconds.
        step: [unit, device] seconds of the optimizer step.
        cut: [unit] bytes behind each unit.
        turn_bytes: Bytes from the last forward to the first backward.
        net: [latency, seconds per byte][source, target].
        num: Number of micro-batches.
        remote_backward: Whether forward and backward of a unit may be on different devices.
        limit_s: The iteration time in question.

    Returns:
        False as soon as some unit has no device left for its forward or for its backward. Later sweeps would fail too.
    """
    forward, input_grad, weight_grad = jobs[0], jobs[1], jobs[2]
    last = len(cut) - 1
    for _ in range(SWEEPS):
        for unit in range(last + 1):
            is_possible = False
            for device in range(len(net[0])):
                f, i, w = forward[unit, device], input_grad[unit, device], weight_grad[unit, device]
                forward_fits = paths[0, unit, device] + num * f + paths[1, unit, device] <= limit_s
                backward_fits = paths[2, unit, device] + num * i + paths[3, unit, device] <= limit_s
                backward_fits = backward_fits and paths[2, unit, device] + num * (i + w) + step[unit, device] <= limit_s
                if not remote_backward:
                    both = paths[0, unit, device] + num * (f + i)
                    forward_fits = backward_fits = (
                        forward_fits
                        and backward_fits
                        and both + paths[3, unit, device] <= limit_s
                        and both + num * w + step[unit, device] <= limit_s
                    )
                if not forward_fits:
                    paths[0, unit, device] = paths[1, unit, device] = np.inf
                if not backward_fits:
                    paths[2, unit, device] = paths[3, unit, device] = np.inf
                is_possible = is_possible or forward_fits
            if not is_possible or not (paths[2, unit] < np.inf).any():
                return False
        for unit in range(1, last + 1):
            bound = _earliest_arrival(
                paths[0, unit - 1], forward[unit - 1], cut[unit - 1], num, forward[unit], paths[1, unit], net, limit_s
            )
            paths[0, unit] = np.maximum(paths[0, unit], bound)
        bound = _earliest_arrival(
            paths[0, last], forward[last], turn_bytes, num, input_grad[last], paths[3, last], net, limit_s
        )
        paths[2, last] = np.maximum(paths[2, last], bound)
        for unit in range(last - 1, -1, -1):
            bound = _earliest_arrival(
                paths[2, unit + 1], input_grad[unit + 1], cut[unit], num, input_grad[unit], paths[3, unit], net, limit_s
            )
            paths[2, unit] = np.maximum(paths[2, unit], bound)
        for unit in range(1, last + 1):
            bound = _least_remainder(
                paths[2, unit],
                input_grad[unit],
                cut[unit - 1],
                num,
                input_grad[unit - 1],
                paths[3, unit - 1],
                net,
                limit_s,
            )
            paths[3, unit] = np.maximum(paths[3, unit], bound)
        bound = _least_remainder(
            paths[0, last], forward[last], turn_bytes, num, input_grad[last], paths[3, last], net, limit_s
        )
        paths[1, last] = np.maximum(paths[1, last], bound)
        for unit in range(last - 1, -1, -1):
            bound = _least_remainder(
                paths[0, unit], forward[unit], cut[unit], num, forward[unit + 1], paths[1, unit + 1], net, limit_s
            )
            paths[1, unit] = np.maximum(paths[1, unit], bound)
    return True


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
def joined_parts(
    paths: Floats,
    jobs: Floats,
    cut: Floats,
    saved: Floats,
    net: Floats,
    num: int,
    remote_backward: bool,
    limit_s: float,
) -> Ints:
    """Labels [forward, backward, saved][unit, device] of the parts that transfers within the limit cannot leave.

    `forward` and `backward` refer to those jobs of units u and u + 1; `saved` refers to both directions of unit u,
    unless the backward's device recomputes its forward.
    """
    num_units, num_devices = jobs[0].shape
    labels = np.empty((3, num_units, num_devices), np.int64)
    forward, input_grad = jobs[0], jobs[1]
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
        if remote_backward:
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
