"""The compiled part of SPP's partitioning: costs of channels, and the table of bottlenecks.

A *group* is a run of devices in the order; groups are sorted by end, then by begin. A *joint* is a pair of groups of
which the second begins where the first ends.

Import this module lazily: it compiles with numba.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Int32s, Ints


class Joints(NamedTuple):
    """Joints begin[g] up to begin[g + 1] lead into group g; joint j comes from group source[j]."""

    begin: Ints
    source: Ints


class Order(NamedTuple):
    """Devices in their order."""

    speed: Floats
    seconds_per_byte: Floats
    """[source, target]"""
    host: Ints
    interface_s: Floats
    """[host] seconds per byte of the shared interface."""


class Groups(NamedTuple):
    """The prices of stages: sums[sums_begin[g] : sums_begin[g + 1]] are those of the replicas of group g."""

    sums_begin: Ints
    sums: Floats
    """[row, cut] running sums of the layers' seconds for all micro-batches."""
    reduce_s: Floats
    """[group] seconds per byte of an all-reduce."""
    latency_s: Floats
    """[group]"""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def channel_seconds(first: Ints, last: Ints, joints: Joints, order: Order, negligible: float) -> Floats:
    """For each joint, the sum of the seconds per byte of both directions.

    Group g has the devices first[g] up to last[g] of the order, with rows in proportion to speed. Each direction is as
    slow as its slowest link with its share of the rows, or as the busiest interface.
    """
    speed, seconds_per_byte = order.speed, order.seconds_per_byte
    host, interface_s = order.host, order.interface_s
    result = np.zeros(len(joints.source))
    leaving, entering = np.zeros(len(interface_s)), np.zeros(len(interface_s))
    for right in range(len(first)):
        for joint in range(joints.begin[right], joints.begin[right + 1]):
            left = joints.source[joint]
            i, i_stop, j, j_stop = first[left], last[left], first[right], last[right]
            left_speed, right_speed = speed[i:i_stop].sum(), speed[j:j_stop].sum()
            left_end, right_end = speed[i] / left_speed, speed[j] / right_speed
            begin, forward, backward = 0.0, 0.0, 0.0
            while i < i_stop and j < j_stop:
                left_stop = 1.0 if i + 1 == i_stop else left_end
                right_stop = 1.0 if j + 1 == j_stop else right_end
                share = min(left_stop, right_stop) - begin
                if share > negligible:
                    forward = max(forward, share * seconds_per_byte[i, j])
                    backward = max(backward, share * seconds_per_byte[j, i])
                    if host[i] != host[j]:
                        leaving[host[i]] += share
                        entering[host[j]] += share
                    begin += share
                # Ends that differ only by rounding are the same.
                if left_stop <= begin + negligible:
                    i += 1
                    left_end += speed[i] / left_speed if i < i_stop else 0.0
                if right_stop <= begin + negligible:
                    j += 1
                    right_end += speed[j] / right_speed if j < j_stop else 0.0
            shared = 0.0
            for device in range(first[left], last[right]):
                machine = host[device]
                shared = max(shared, max(leaving[machine], entering[machine]) * interface_s[machine])
                leaving[machine] = entering[machine] = 0.0
            result[joint] = max(forward, shared) + max(backward, shared)
    return result


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _extend(
    before: Floats,
    begin: int,
    sums: Floats,
    parameters: Floats,
    reduce_s: float,
    latency_s: float,
    queue: Ints,
    result: Floats,
    cut: Int32s,
) -> None:
    """Set result[l] to the least over cuts c < l of max(before[c], seconds of layers c up to l), and cut[l] to that c.

    Seconds fall as c rises, so of two cuts the earlier one matters only if its `before` is smaller: the queue holds
    such cuts in rising order. If the first of them takes as long as the second's `before`, the second is never worse,
    for this l and for all later ones. So each cut enters and leaves the queue once.
    """
    head, tail = 0, 0
    for stop in range(begin + 1, len(result)):
        value = before[stop - 1]
        if value < np.inf:
            while tail > head and before[queue[tail - 1]] >= value:
                tail -= 1
            queue[tail] = stop - 1
            tail += 1
        result[stop] = np.inf
        while head < tail:
            at = queue[head]
            longest = 0.0
            for row in range(len(sums)):
                longest = max(longest, sums[row, stop] - sums[row, at])
            seconds = longest + (parameters[stop] - parameters[at]) * reduce_s + latency_s
            if head + 1 < tail and seconds >= before[queue[head + 1]]:
                head += 1
                continue
            result[stop] = max(before[at], seconds)
            cut[stop] = at
            break


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def bottlenecks(
    num_stages: int, joints: Joints, joint_s: Floats, groups: Groups, parameters: Floats, cut_bytes: Floats
) -> tuple[Floats, Int32s, Int32s]:
    """For each number of stages and last group: the least bottleneck of all layers, with the cuts and groups before it.

    `parameters[l]` are the bytes of the first l layers' parameters; `cut_bytes[l]` are the bytes of all micro-batches
    over the cut behind l layers.
    """
    num_groups, size = len(joints.begin) - 1, groups.sums.shape[1]
    best = np.full((num_stages + 1, num_groups), np.inf)
    cuts = np.empty((num_stages + 1, num_groups, size), np.int32)
    sources = np.empty((num_stages + 1, num_groups, size), np.int32)
    now, then = np.full((num_groups, size), np.inf), np.full((num_groups, size), np.inf)
    before, source = np.empty(size), np.empty(size, np.int32)
    queue = np.empty(size, np.int64)
    for stage in range(1, num_stages + 1):
        now, then = then, now
        for group in range(num_groups):
            before[:] = np.inf
            if stage == 1:
                before[0] = 0.0
                source[0] = -1
            for joint in range(joints.begin[group], joints.begin[group + 1]):
                left, rate = joints.source[joint], joint_s[joint]
                if stage == 1 or best[stage - 1, left] == np.inf:
                    continue
                for unit in range(stage - 1, size - 1):
                    value = max(then[left, unit], cut_bytes[unit] * rate)
                    if value < before[unit]:
                        before[unit] = value
                        source[unit] = left
            now[group, :stage] = np.inf
            _extend(
                before,
                stage - 1,
                groups.sums[groups.sums_begin[group] : groups.sums_begin[group + 1]],
                parameters,
                groups.reduce_s[group],
                groups.latency_s[group],
                queue,
                now[group],
                cuts[stage, group],
            )
            best[stage, group] = now[group, size - 1]
            for stop in range(stage, size):
                if now[group, stop] < np.inf:
                    sources[stage, group, stop] = source[cuts[stage, group, stop]]
    return best, cuts, sources
