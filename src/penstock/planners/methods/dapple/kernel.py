"""The compiled search of DAPPLE over (layers planned so far, devices taken).

Three numbers describe the rest of a pipeline; the search computes them from its end to its front. For the jobs k, k+1
and so on (stages and the channels between them), measured from the start of job k's first forward,

    X(k) = max( F + B + X(k+1),  M (F + B) )                            is the end of job k's last backward,
    Y(k) = max( F + Y(k+1),  X(k) + AR,  F + (M - 1)(F + B) + Z(k+1) )  is the end of all reductions,
    Z(k) = max( AR,  Z(k+1) - B )                                       is the time from the start of the last
                                                                        backward of job k-1 to that end.

The first term of Y has its pivot behind k, the last one has it at k with a reduction behind it. Y(0) is the latency
around the stage that makes it longest. All three increase with their inputs, so of two suffixes with the same layers on
the same devices, one that is not better in any of the three can be dropped: the search keeps a Pareto frontier. It is
exact as long as no state has more than `FRONTIER_SIZE` entries; beyond, it drops those with the largest Y.

Import this module lazily: it compiles with numba.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Int32s, Ints

FRONTIER_SIZE = 6


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _keep(
    frontier: Floats, choices: Int32s, count: int, x: float, y: float, z: float, stop: int, following: int, entry: int
) -> int:
    """Add (x, y, z) to the first `count` entries of a frontier unless one dominates it; return the new count."""
    for index in range(count):
        if frontier[index, 0] <= x and frontier[index, 1] <= y and frontier[index, 2] <= z:
            return count
    kept = 0
    for index in range(count):
        if not (x <= frontier[index, 0] and y <= frontier[index, 1] and z <= frontier[index, 2]):
            for part in range(3):
                frontier[kept, part] = frontier[index, part]
                choices[kept, part] = choices[index, part]
            kept += 1
    at = kept
    if kept == len(frontier):
        at = 0
        for index in range(1, kept):
            if frontier[index, 1] > frontier[at, 1]:
                at = index
        if y >= frontier[at, 1]:
            return kept
        kept -= 1
    frontier[at, 0], frontier[at, 1], frontier[at, 2] = x, y, z
    choices[at, 0], choices[at, 1], choices[at, 2] = stop, following, entry
    return kept + 1


class Steps(NamedTuple):
    """The steps of the search: step e puts a stage on group group[e]."""

    group: Ints
    num_first: int
    """The number of steps that may start a plan; they come first."""
    next_begin: Ints
    next_end: Ints
    """Steps next_begin[e] up to next_end[e], all of higher numbers, may follow step e."""
    channel_begin: Ints
    channels: Floats
    """channels[channel_begin[e] + n] is the price of the channel from step e to the n-th step that may follow it."""


class Groups(NamedTuple):
    """Rows row_begin[g] up to row_begin[g + 1] of `forward` and `backward` are those of group g's distinct replicas."""

    row_begin: Ints
    forward: Floats
    """[row, cut] running sums of seconds."""
    backward: Floats
    reductions: Floats
    """[group, (latency, seconds per byte)] of an all-reduce."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def search(
    limit: float, num_microbatches: float, steps: Steps, groups: Groups, parameter_sums: Floats, cut_bytes: Floats
) -> tuple[Floats, Ints, Int32s]:
    """Compute the frontier of every step at every cut, without suffixes that take `limit` or longer.

    Returns:
        The frontier [step, cut, entry, (X, Y, Z)], the number of its entries [step, cut], and the choices
        [step, cut, entry, (end of the stage, next step, entry of that step)].
    """
    next_begin, channels, row_begin = steps.next_begin, steps.channels, groups.row_begin
    forward, backward, reductions = groups.forward, groups.backward, groups.reductions
    num_steps, num_units = len(steps.group), len(cut_bytes) - 1
    frontier = np.empty((num_steps, num_units + 1, FRONTIER_SIZE, 3))
    choices = np.empty((num_steps, num_units + 1, FRONTIER_SIZE, 3), dtype=np.int32)
    counts = np.zeros((num_steps, num_units + 1), dtype=np.int64)
    suffix = np.full((num_units + 1, FRONTIER_SIZE, 3), -np.inf)
    suffix_choices = np.full((num_units + 1, FRONTIER_SIZE, 3), -1, dtype=np.int32)
    suffix_counts = np.zeros(num_units + 1, dtype=np.int64)
    # The suffix behind the last layer is empty and takes no time.
    suffix_counts[num_units] = 1
    for step in range(num_steps - 1, -1, -1):
        # 1. The suffixes behind each cut, with the channel to them.
        suffix_counts[:num_units] = 0
        for following in range(next_begin[step], steps.next_end[step]):
            price = channels[steps.channel_begin[step] + following - next_begin[step]]
            for cut in range(1, num_units):
                f = price[0] + price[1] * cut_bytes[cut]
                b = price[2] + price[3] * cut_bytes[cut]
                for entry in range(counts[following, cut]):
                    after = frontier[following, cut, entry]
                    x = max(f + b + after[0], num_microbatches * (f + b))
                    y = max(f + after[1], x, f + (num_microbatches - 1) * (f + b) + after[2])
                    z = max(0.0, after[2] - b)
                    if y < limit:
                        suffix_counts[cut] = _keep(
                            suffix[cut], suffix_choices[cut], suffix_counts[cut], x, y, z, cut, following, entry
                        )
        # 2. The stage itself, from each cut to each later one.
        group = steps.group[step]
        for start in range(1) if step < steps.num_first else range(1, num_units):
            num_entries = 0
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
                for entry in range(suffix_counts[stop]):
                    after = suffix[stop, entry]
                    x = max(f + b + after[0], own)
                    y = max(f + after[1], x + reduction, f + (num_microbatches - 1) * (f + b) + after[2])
                    z = max(reduction, after[2] - b)
                    if y < limit:
                        following, next_entry = suffix_choices[stop, entry, 1], suffix_choices[stop, entry, 2]
                        num_entries = _keep(
                            frontier[step, start],
                            choices[step, start],
                            num_entries,
                            x,
                            y,
                            z,
                            stop,
                            following,
                            next_entry,
                        )
            counts[step, start] = num_entries
    return frontier, counts, choices
