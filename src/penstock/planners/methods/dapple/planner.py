"""DAPPLE: stages on groups of devices with the least latency of a synchronous pipeline around its pivot stage.

Stages and the channels between them are jobs with F and B seconds for a micro-batch; stage s ends with an all-reduce of
AR(s) seconds. Around a pivot Q an iteration of M micro-batches is

    warm-up   F(0) + ... + F(Q)
    steady    (M - 1) (F(Q) + B(Q))
    ending    the longest over s of  AR(s) + B(s) + ... + B(Q)          for s up to Q,
                                     AR(s) - B(Q+1) - ... - B(s-1)      for s behind Q

and stages get their devices by the policies fresh first, append first and scatter first (dapple_places.py).

The paper's: that latency, and planning stage by stage over (units planned, devices taken) with the three policies.
Ours: the pivot is the job for which the latency is longest, where the paper finds it by one pass over the stages; the
search keeps all ways that may still become the best one (dapple_kernel.py), so it finds the least latency there is with
these placements; rows are split by speed, times are those of the slowest member, transfers and reductions those of the
very links, latencies and interfaces; devices may be left idle. Hosts, and the devices of a host, are taken in the order
of the cluster. The whole model on all devices and that on the fastest one are candidates, so it never loses to them by
its own latency. To bound the search, large clusters allow fewer placements (`find_steps`), and models of many units
are merged to blocks of about equal work: to `MOST_BLOCKS` of them, or more where the search stays within `MOST_WORK`.

Cost: O(steps units^2 + pairs of steps units), with steps at most quadratic in the devices on one host, and at
most about `MOST_STEPS` otherwise.

Reference: Fan et al., DAPPLE: a pipelined data parallel approach for training large models, PPoPP 2021.

>>> from penstock.cluster.load import load_cluster
>>> from penstock.profile.load import load_profile
>>> plan = dapple(Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 10 GB/s"), 8))
>>> plan.num_stages <= 2, len(plan.devices)
(True, 2)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan import Plan
from penstock.planners.costs import BACKWARD, FORWARD, HUGE, Replicas
from penstock.planners.methods.dapple.placement import Step, Taken, find_steps
from penstock.planners.methods.pipedream import Stage
from penstock.planners.problem import Problem

MOST_BLOCKS = 64
MOST_WORK = 8e7


def dapple(problem: Problem) -> Plan:
    """The pipeline with the least latency by DAPPLE's formula, data parallelism included."""
    replicas = Replicas(problem)
    num_units = problem.profile.num_units
    best = [Stage(0, num_units, (replicas.fastest,))]
    if replicas.shares(replicas.row) is not None:
        best = min([Stage(0, num_units, replicas.row)], best, key=lambda stages: latency_s(replicas, stages))
    best = _search(replicas, latency_s(replicas, best)) or best
    cuts = [0, *(stage.stop for stage in best)]
    return problem.plan("dapple", cuts, [replicas.replicas(stage.group) for stage in best])


def latency_s(replicas: Replicas, stages: Sequence[Stage]) -> float:
    """Warm-up, steady phase and ending of an iteration, around the pivot for which they are longest."""
    forward, backward, reduction = [], [], []
    for number, stage in enumerate(stages):
        if number > 0:
            channel = replicas.channel(stages[number - 1].group, stage.group)
            size = float(replicas.cut_bytes[stage.start])
            forward.append(channel.forward.of(size))
            backward.append(channel.backward.of(size))
            reduction.append(0.0)
        size = float(replicas.parameter_sums[stage.stop] - replicas.parameter_sums[stage.start])
        forward.append(replicas.seconds(stage.group, stage.start, stage.stop, FORWARD))
        backward.append(replicas.seconds(stage.group, stage.start, stage.stop, BACKWARD))
        reduction.append(replicas.reduce_price(stage.group).of(size))
    return pivot_latency_s(forward, backward, reduction, replicas.problem.num_microbatches)


def pivot_latency_s(
    forward: Sequence[float], backward: Sequence[float], reduction: Sequence[float], num_microbatches: int
) -> float:
    """The latency of jobs with these seconds of forward, backward and reduction.

    >>> pivot_latency_s([1, 2], [2, 4], [0, 3], 4)  # around the second: 1 + 2, 3 (2 + 4), and 4 + max(2, 3)
    28.0
    >>> pivot_latency_s([2, 1], [4, 2], [0, 9], 4)  # around the first: 2, 3 (2 + 4), and max(4, 9)
    29.0
    """
    before = [0.0, *accumulate(backward)]
    latency = 0.0
    warm_up = 0.0
    for pivot, (f, b) in enumerate(zip(forward, backward, strict=True)):
        warm_up += f
        steady = (num_microbatches - 1) * (f + b)
        # Measured from the start of its last backward: stages before it end later, stages behind it are done already.
        ending = max(reduced + before[pivot + 1] - before[stage] for stage, reduced in enumerate(reduction))
        latency = max(latency, warm_up + steady + ending)
    return latency


def _search(replicas: Replicas, limit: float) -> list[Stage] | None:
    """The stages of least latency below a limit; None if there are none."""
    from penstock.planners.methods.dapple.kernel import search

    places = _placements(replicas)
    blocks = _blocks(replicas, len(places.step_group))
    forward = [replicas.sums(group, FORWARD)[:, blocks] for group in places.groups]
    backward = [replicas.sums(group, BACKWARD)[:, blocks] for group in places.groups]
    prices = np.array([replicas.reduce_price(group) for group in places.groups])
    ways, counts, choices = search(
        limit,
        float(replicas.problem.num_microbatches),
        places.step_group,
        places.num_first,
        places.next_begin,
        places.next_end,
        places.channel_begin,
        places.channels,
        np.concatenate([[0], np.cumsum([len(rows) for rows in forward])]).astype(np.int64),
        np.ascontiguousarray(np.concatenate(forward)),
        np.ascontiguousarray(np.concatenate(backward)),
        prices,
        replicas.parameter_sums[blocks],
        replicas.cut_bytes[blocks],
    )
    least, step, way = math.inf, -1, -1
    for number in range(places.num_first):
        for place in range(int(counts[number, 0])):
            if ways[number, 0, place, 1] < least:
                least, step, way = float(ways[number, 0, place, 1]), number, place
    stages = []
    start = 0
    while step >= 0:
        stop, following, next_way = (int(value) for value in choices[step, start, way])
        stages.append(Stage(int(blocks[start]), int(blocks[stop]), places.groups[places.step_group[step]]))
        start, step, way = stop, following, next_way
    return stages or None


@dataclass(frozen=True, eq=False)
class _Placements:
    """The steps as arrays: their groups, and the steps that may follow each (`next_begin` up to `next_end`)."""

    groups: list[tuple[int, ...]]
    step_group: Ints
    num_first: int
    """So many steps, the first ones, can be the first of a plan."""
    next_begin: Ints
    next_end: Ints
    channel_begin: Ints
    """Where the channels from a step to those that may follow begin."""
    channels: Floats


def _placements(replicas: Replicas) -> _Placements:
    groups: dict[tuple[int, ...], int] = {}
    steps: list[Step] = []
    numbers: list[int] = []
    for step in find_steps(tuple(len(host) for host in replicas.hosts)):
        spans = zip(replicas.hosts, step.before, step.after, strict=True)
        group = tuple(place for host, first, last in spans for place in host[first:last])
        if replicas.shares(group) is not None:
            steps.append(step)
            numbers.append(groups.setdefault(group, len(groups)))
    begin: dict[Taken, int] = {}
    end: dict[Taken, int] = {}
    for number, step in enumerate(steps):
        begin.setdefault(step.before, number)
        end[step.before] = number + 1
    next_begin = np.array([begin.get(step.after, 0) for step in steps], dtype=np.int64)
    next_end = np.array([end.get(step.after, 0) for step in steps], dtype=np.int64)
    step_group = np.array(numbers, dtype=np.int64)
    width = next_end - next_begin
    channel_begin = np.concatenate([[0], np.cumsum(width)])
    left = np.repeat(np.arange(len(steps)), width)
    right = np.arange(int(channel_begin[-1])) - np.repeat(channel_begin[:-1] - next_begin, width)
    channels = replicas.channels(list(groups), step_group[left], step_group[right])
    return _Placements(list(groups), step_group, end[steps[0].before], next_begin, next_end, channel_begin, channels)


def _blocks(replicas: Replicas, num_steps: int) -> Ints:
    """The cuts that are tried: all, or near the ends of equal parts of the work those with the fewest bytes."""
    num_units = replicas.problem.profile.num_units
    most = max(MOST_BLOCKS, int(math.sqrt(MOST_WORK / num_steps)))
    if num_units <= most:
        return np.arange(num_units + 1)
    work: Floats = np.minimum(replicas.problem.clock.work(replicas.row[0]), HUGE)
    if not work[-1] > 0:
        work = np.arange(num_units + 1, dtype=np.float64)
    # The inner cuts fall to the nearest of the most - 1 ends between parts; the first and the last half part have none.
    parts = work / work[-1] * most
    nearest = np.rint(parts[1:-1]).astype(np.int64)
    cuts = [0, num_units]
    for part in range(1, most):
        near = np.flatnonzero(nearest == part) + 1
        if len(near):
            cuts.append(int(near[np.lexsort((np.abs(parts[near] - part), replicas.cut_bytes[near]))[0]]))
    return np.array(sorted(cuts))
