"""The compiled search of DAPPLE over (units planned so far, devices taken); imported late.

What follows a place in the pipeline is told by three numbers, worked out from its end to its front. For the jobs k, k+1
and so on (stages and the channels between them), measured from the start of job k's first forward,

    to_end    until job k's last backward is done:  X(k) = max( F + B + X(k+1),  M (F + B) )
    to_all    until all reductions are done too:    Y(k) = max( F + Y(k+1),  X(k) + AR,  F + (M - 1)(F + B) + Z(k+1) )
    after     by how much reductions outlast the start of the last backward of job k-1:
                                                    Z(k) = max( AR,  Z(k+1) - B )

The first term of Y has its pivot behind k, the last one has it at k with a reduction behind it. Y(0) is the latency
around the stage that makes it longest. All three only grow with what they are made from, so of two ways to run the same
units on the same devices, one that is no better in any of the three can be dropped: the search is exact as long as no
more than `WAYS` are left in one place (else those that end latest are dropped).
"""

import numba
import numpy as np

from penstock.arrays import Floats, Int32s, Ints

WAYS = 6


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _keep(
    ways: Floats, choices: Int32s, count: int, x: float, y: float, z: float, stop: int, following: int, way: int
) -> int:
    """Add a way to the first `count` of a place, unless one of them is as good; how many there are then."""
    for place in range(count):
        if ways[place, 0] <= x and ways[place, 1] <= y and ways[place, 2] <= z:
            return count
    kept = 0
    for place in range(count):
        if not (x <= ways[place, 0] and y <= ways[place, 1] and z <= ways[place, 2]):
            for part in range(3):
                ways[kept, part] = ways[place, part]
                choices[kept, part] = choices[place, part]
            kept += 1
    at = kept
    if kept == len(ways):
        at = 0
        for place in range(1, kept):
            if ways[place, 1] > ways[at, 1]:
                at = place
        if y >= ways[at, 1]:
            return kept
        kept -= 1
    ways[at, 0], ways[at, 1], ways[at, 2] = x, y, z
    choices[at, 0], choices[at, 1], choices[at, 2] = stop, following, way
    return kept + 1


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def search(
    limit: float,
    num_microbatches: float,
    step_group: Ints,
    num_first: int,
    next_begin: Ints,
    next_end: Ints,
    channel_begin: Ints,
    channels: Floats,
    row_begin: Ints,
    forward: Floats,
    backward: Floats,
    reductions: Floats,
    parameter_sums: Floats,
    cut_bytes: Floats,
) -> tuple[Floats, Ints, Int32s]:
    """The ways to go on with each step at each cut, and how they go on: (end of the stage, next step, its way).

    Step e puts a stage on group step_group[e]; the first num_first steps may start a plan, and next_begin[e] up to
    next_end[e], all of higher numbers, may follow step e. channels[channel_begin[e] + n] is the price of the channel to
    the n-th of those. Rows row_begin[g] up to row_begin[g + 1] of `forward` and `backward` are running sums of group
    g's unlike members. Ways that take `limit` or longer are left out.
    """
    num_steps, num_units = len(step_group), len(cut_bytes) - 1
    ways = np.empty((num_steps, num_units + 1, WAYS, 3))
    choices = np.empty((num_steps, num_units + 1, WAYS, 3), dtype=np.int32)
    counts = np.zeros((num_steps, num_units + 1), dtype=np.int64)
    behind = np.full((num_units + 1, WAYS, 3), -np.inf)
    behind_choices = np.full((num_units + 1, WAYS, 3), -1, dtype=np.int32)
    behind_counts = np.zeros(num_units + 1, dtype=np.int64)
    # Behind the last unit there is nothing, which takes no time at all.
    behind_counts[num_units] = 1
    for step in range(num_steps - 1, -1, -1):
        # 1. What can follow, with the channel to it: a list of ways for each cut.
        behind_counts[:num_units] = 0
        for following in range(next_begin[step], next_end[step]):
            price = channels[channel_begin[step] + following - next_begin[step]]
            for cut in range(1, num_units):
                f = price[0] + price[1] * cut_bytes[cut]
                b = price[2] + price[3] * cut_bytes[cut]
                for way in range(counts[following, cut]):
                    after = ways[following, cut, way]
                    x = max(f + b + after[0], num_microbatches * (f + b))
                    y = max(f + after[1], x, f + (num_microbatches - 1) * (f + b) + after[2])
                    z = max(0.0, after[2] - b)
                    if y < limit:
                        behind_counts[cut] = _keep(
                            behind[cut], behind_choices[cut], behind_counts[cut], x, y, z, cut, following, way
                        )
        # 2. The stage itself, from each cut to each later one.
        group = step_group[step]
        for start in range(1) if step < num_first else range(1, num_units):
            found = 0
            for stop in range(start + 1, num_units + 1):
                f, b = 0.0, 0.0
                for row in range(row_begin[group], row_begin[group + 1]):
                    f = max(f, forward[row, stop] - forward[row, start])
                    b = max(b, backward[row, stop] - backward[row, start])
                own = num_microbatches * (f + b)
                if own >= limit:
                    break
                size = parameter_sums[stop] - parameter_sums[start]
                reduction = reductions[group, 0] + reductions[group, 1] * size
                for way in range(behind_counts[stop]):
                    after = behind[stop, way]
                    x = max(f + b + after[0], own)
                    y = max(f + after[1], x + reduction, f + (num_microbatches - 1) * (f + b) + after[2])
                    z = max(reduction, after[2] - b)
                    if y < limit:
                        following, follower_way = behind_choices[stop, way, 1], behind_choices[stop, way, 2]
                        found = _keep(
                            ways[step, start], choices[step, start], found, x, y, z, stop, following, follower_way
                        )
            counts[step, start] = found
    return ways, counts, choices
