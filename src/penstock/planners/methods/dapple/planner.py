"""DAPPLE: stages on groups of devices that minimize the latency of a synchronous pipeline around its pivot stage.

Stages and the channels between them are jobs with F and B seconds per micro-batch; stage s ends with an all-reduce of
AR(s) seconds. Around a pivot Q an iteration of M micro-batches consists of

    warm-up   F(0) + ... + F(Q)
    steady    (M - 1) (F(Q) + B(Q))
    ending    the longest over s of  AR(s) + B(s) + ... + B(Q)          for s up to Q,
                                     AR(s) - B(Q+1) - ... - B(s-1)      for s behind Q

The policies fresh first, append first and scatter first assign devices to stages (placement.py).

From the paper: this latency, and planning stage by stage over (layers planned, devices taken) with the three policies.
Different here: the pivot is the job with the longest latency, where the paper finds it by one pass over the stages. The
search keeps a Pareto frontier (kernel.py), so it finds the least latency for these placements. Rows are split by speed,
and times are those of the slowest replica. Transfers and reductions use the actual links, latencies and interfaces.
Devices may stay idle. Stages take hosts, and the devices of a host, in the order of the cluster. The whole model on all
devices and on the fastest one are candidates, so the result is never worse than these by its own latency. To bound the
search, large clusters allow fewer placements (`find_steps`), and models of many layers are merged into blocks of about
equal work: `MAX_BLOCKS` of them, or more if the search stays within `MAX_WORK`.

Cost: O(steps layers^2 + pairs of steps layers), with steps at most quadratic in the devices on one host, and at most
about `MAX_STEPS` otherwise.

Reference: Fan et al., DAPPLE: a pipelined data parallel approach for training large models, PPoPP 2021.

>>> from penstock.cluster.load import load_cluster
>>> from penstock.profile.load import load_profile
>>> plan = dapple(Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 10 GB/s"), 8))
>>> plan.num_stages <= 2, len(plan.devices)
(True, 2)
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan import Plan
from penstock.planners.costs import BACKWARD, FORWARD, HUGE, GroupCosts
from penstock.planners.methods.dapple.placement import Step, Taken, find_steps
from penstock.planners.methods.pipedream import Stage
from penstock.planners.problem import Problem

if TYPE_CHECKING:
    from penstock.planners.methods.dapple.kernel import Steps

MAX_BLOCKS = 64
MAX_WORK = 8e7


def dapple(
    problem: Problem, *, replication: bool = True, unequal_replicas: bool = True, device_order: bool = True
) -> Plan:
    """Plan the pipeline with the least latency by DAPPLE's formula; data parallelism is one of the candidates.

    Args:
        problem: The problem.
        replication: Whether stages may have several devices. Data parallelism is no candidate then.
        unequal_replicas: Whether stages may have different numbers of replicas.
        device_order: Whether stages may take devices in another order than that of the cluster.
    """
    group_costs = GroupCosts(problem)
    num_units = problem.profile.num_units
    best = [Stage(0, num_units, (group_costs.fastest,))]
    everything = tuple(sorted(group_costs.devices)) if not device_order else group_costs.devices
    if replication and group_costs.shares(everything) is not None:
        best = min([Stage(0, num_units, everything)], best, key=lambda stages: latency_s(group_costs, stages))
    sizes: Sequence[int | None] = [None]
    if not replication:
        sizes = [1]
    elif not unequal_replicas:
        sizes = range(1, len(everything))
    for size in sizes:
        best = _search(group_costs, latency_s(group_costs, best), size, in_order=not device_order) or best
    cuts = [0, *(stage.stop for stage in best)]
    return problem.plan("dapple", cuts, [group_costs.plan_group(stage.group) for stage in best])


def latency_s(group_costs: GroupCosts, stages: Sequence[Stage]) -> float:
    """Seconds of warm-up, steady phase and ending of an iteration, around the pivot with the longest sum."""
    forward, backward, reduction = [], [], []
    for number, stage in enumerate(stages):
        if number > 0:
            channel = group_costs.channel(stages[number - 1].group, stage.group)
            size = float(group_costs.cut_bytes[stage.start])
            forward.append(channel.forward.of(size))
            backward.append(channel.backward.of(size))
            reduction.append(0.0)
        size = float(group_costs.parameter_sums[stage.stop] - group_costs.parameter_sums[stage.start])
        forward.append(group_costs.seconds(stage.group, stage.start, stage.stop, FORWARD))
        backward.append(group_costs.seconds(stage.group, stage.start, stage.stop, BACKWARD))
        reduction.append(group_costs.reduce_price(stage.group).of(size))
    return pivot_latency_s(forward, backward, reduction, group_costs.problem.num_microbatches)


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
        # Measured from the start of the pivot's last backward: stages before it end later, stages behind it earlier.
        ending = max(reduced + before[pivot + 1] - before[stage] for stage, reduced in enumerate(reduction))
        latency = max(latency, warm_up + steady + ending)
    return latency


def _search(
    group_costs: GroupCosts, limit: float, num_replicas: int | None = None, *, in_order: bool = False
) -> list[Stage] | None:
    """The stages with the least latency below a limit; None if there are none.

    With `num_replicas`, all have that many. With `in_order`, devices are in the order of the cluster.
    """
    from penstock.planners.methods.dapple.kernel import Groups, search

    placements = _placements(group_costs, num_replicas, in_order=in_order)
    if placements is None:
        return None
    blocks = _blocks(group_costs, len(placements.steps.group))
    forward = [group_costs.sums(group, FORWARD)[:, blocks] for group in placements.groups]
    backward = [group_costs.sums(group, BACKWARD)[:, blocks] for group in placements.groups]
    prices = np.array([group_costs.reduce_price(group) for group in placements.groups])
    groups = Groups(
        row_begin=np.concatenate([[0], np.cumsum([len(rows) for rows in forward])]).astype(np.int64),
        forward=np.ascontiguousarray(np.concatenate(forward)),
        backward=np.ascontiguousarray(np.concatenate(backward)),
        reductions=prices,
    )
    num = float(group_costs.problem.num_microbatches)
    frontier, counts, choices = search(
        limit, num, placements.steps, groups, group_costs.parameter_sums[blocks], group_costs.cut_bytes[blocks]
    )
    least, step, entry = math.inf, -1, -1
    for number in range(placements.steps.num_first):
        for index in range(int(counts[number, 0])):
            if frontier[number, 0, index, 1] < least:
                least, step, entry = float(frontier[number, 0, index, 1]), number, index
    stages = []
    start = 0
    while step >= 0:
        stop, following, next_entry = (int(value) for value in choices[step, start, entry])
        stages.append(Stage(int(blocks[start]), int(blocks[stop]), placements.groups[placements.steps.group[step]]))
        start, step, entry = stop, following, next_entry
    return stages or None


class _Placements(NamedTuple):
    """The groups of devices, and the steps that put a stage on one of them."""

    groups: list[tuple[int, ...]]
    steps: "Steps"


def _placements(group_costs: GroupCosts, num_replicas: int | None, *, in_order: bool) -> _Placements | None:
    """All steps that a search may take; None if there are none."""
    from penstock.planners.methods.dapple.kernel import Steps

    groups: dict[tuple[int, ...], int] = {}
    steps: list[Step] = []
    numbers: list[int] = []
    for step in find_steps(tuple(len(host) for host in group_costs.hosts)):
        spans = zip(group_costs.hosts, step.before, step.after, strict=True)
        group = tuple(device for host, first, last in spans for device in host[first:last])
        if num_replicas is not None and len(group) != num_replicas:
            continue
        if in_order:
            taken = [
                device for host, last in zip(group_costs.hosts, step.before, strict=True) for device in host[:last]
            ]
            group = tuple(sorted(group))
            if taken and max(taken) > group[0]:
                continue
        if group_costs.shares(group) is not None:
            steps.append(step)
            numbers.append(groups.setdefault(group, len(groups)))
    if not steps or any(steps[0].before):
        return None
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
    channels = group_costs.channels(list(groups), step_group[left], step_group[right])
    first = end[steps[0].before]
    return _Placements(list(groups), Steps(step_group, first, next_begin, next_end, channel_begin, channels))


def _blocks(group_costs: GroupCosts, num_steps: int) -> Ints:
    """The cuts to try: all, or near the ends of equal parts of the work the cuts with the fewest bytes."""
    num_units = group_costs.problem.profile.num_units
    most = max(MAX_BLOCKS, int(math.sqrt(MAX_WORK / num_steps)))
    if num_units <= most:
        return np.arange(num_units + 1)
    work: Floats = np.minimum(group_costs.problem.clock.work(group_costs.devices[0]), HUGE)
    if not work[-1] > 0:
        work = np.arange(num_units + 1, dtype=np.float64)
    # Assign each inner cut to the nearest of the most - 1 ends between parts; the outer half parts have none.
    parts = work / work[-1] * most
    nearest = np.rint(parts[1:-1]).astype(np.int64)
    cuts = [0, num_units]
    for part in range(1, most):
        near = np.flatnonzero(nearest == part) + 1
        if len(near):
            cuts.append(int(near[np.lexsort((np.abs(parts[near] - part), group_costs.cut_bytes[near]))[0]]))
    return np.array(sorted(cuts))
