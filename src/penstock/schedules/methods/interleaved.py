"""Interleaved 1F1B: every device holds several stages, and micro-batches go round the loop of devices.

    device 0   F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 .  b2 .  b3 B2 B3
    device 1   .  F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3
               (2 devices, F and B of stages 0 and 1, f and b of stages 2 and 3; drawn equally long)

Micro-batches pass in groups of as many as there are devices: all of a group through a device's first stage, then
all through its second, and so on; backwards in the reverse order of stages. Device d of p, with v stages, starts
its first backward after 2 (p - d - 1) + (v - 1) p + 1 forwards. The bubble is v times smaller than that of 1F1B.

The number of micro-batches need not divide by p, nor need the map be a loop: the order is computed for a full loop
and full groups, and missing passes are left out. Leaving out whole micro-batches or the last stages cannot create
a deadlock. Cost: O(jobs).

Reference: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters, 2021.
"""

from collections import Counter
from functools import lru_cache

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.methods.one_f_one_b import one_f_one_b
from penstock.schedules.ordering import order_by_clock


def interleaved(costs: Costs) -> Program:
    """Loop over the devices; 1F1B where every device has one stage."""
    held = Counter(costs.backward_device.tolist()) | Counter(costs.forward_device.tolist())
    num_chunks = max(held.values())
    if num_chunks == 1:
        return one_f_one_b(costs)
    num_ranks = -(-costs.plan.num_stages // num_chunks)
    num_groups = -(-costs.num_microbatches // num_ranks)
    forward, backward = _loop_times(num_ranks, num_chunks, num_groups)
    return order_by_clock(
        costs,
        lambda stage, microbatch: forward[stage, microbatch],
        lambda stage, microbatch: backward[stage, microbatch],
        split=costs.plan.split_backward,
    )


def rank_order(rank: int, num_ranks: int, num_chunks: int, num_groups: int) -> list[tuple[bool, int, int]]:
    """The order of one device of a full loop: (is it a forward, stage, micro-batch)."""
    turns = [
        (chunk, group * num_ranks + number)
        for group in range(num_groups)
        for chunk in range(num_chunks)
        for number in range(num_ranks)
    ]
    forwards = [(True, chunk * num_ranks + rank, microbatch) for chunk, microbatch in turns]
    backwards = [(False, (num_chunks - 1 - chunk) * num_ranks + rank, microbatch) for chunk, microbatch in turns]
    warm_up = min(2 * (num_ranks - rank - 1) + (num_chunks - 1) * num_ranks, len(turns))
    order = forwards[:warm_up]
    for number in range(len(turns) - warm_up):
        order += (forwards[warm_up + number], backwards[number])
    return order + backwards[len(turns) - warm_up :]


@lru_cache(maxsize=8)
def _loop_times(num_ranks: int, num_chunks: int, num_groups: int) -> tuple[Ints, Ints]:
    """When each job of a full loop would start if every job took one unit of time."""
    num_stages, num = num_ranks * num_chunks, num_groups * num_ranks
    orders = [rank_order(rank, num_ranks, num_chunks, num_groups) for rank in range(num_ranks)]
    start = {True: np.full((num_stages, num), -1, dtype=np.int64), False: np.full((num_stages, num), -1, np.int64)}
    clock, done = [0] * num_ranks, [0] * num_ranks
    waiting = list(range(num_ranks))
    while waiting:
        rank = waiting.pop()
        while done[rank] < len(orders[rank]):
            is_forward, stage, microbatch = orders[rank][done[rank]]
            before = stage - 1 if is_forward else stage + 1
            ready = 0
            if 0 <= before < num_stages:
                ready = int(start[is_forward][before, microbatch]) + 1
            elif not is_forward:
                ready = int(start[True][stage, microbatch]) + 1
            if ready == 0 and (before >= 0):
                break
            clock[rank] = max(clock[rank], ready)
            start[is_forward][stage, microbatch] = clock[rank]
            clock[rank] += 1
            done[rank] += 1
            after = stage + 1 if is_forward else stage - 1
            if 0 <= after < num_stages and after % num_ranks != rank:
                waiting.append(after % num_ranks)
    for times in start.values():
        times.setflags(write=False)
    return start[True], start[False]
