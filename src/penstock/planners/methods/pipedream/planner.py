"""PipeDream: stages and replica counts with the least bottleneck, level by level of the cluster.

A(i -> j, d) is the least bottleneck of layers i up to j on d devices in a row. Its last stage takes the layers behind
some cut, on the last r devices:

    A(i -> j, d) = min over cuts s and r of max{ A(i -> s, d - r), channel at s, stage s -> j on r devices }

From the paper: this dynamic program; two levels, inside hosts and then over whole hosts, where a stage of the upper
level is the best pipeline of its layers inside a host, repeated on every host that shares the stage
(O(layers^3 devices^2) inside).

Different here: training is synchronous, so a stage costs its compute seconds for a micro-batch, with rows split over
the group by speed, plus an M-th of the all-reduce, which ends the iteration and overlaps with nothing (asynchronous
training takes the larger of the two). Transfers between stages always count: both directions, with their latency (a
pipeline with few micro-batches in flight does not hide it), between the actual devices and over shared interfaces. The
program finds the best r before a cut for each r behind it, at no extra cost. Devices at the end of the row may stay
idle.

The two levels require hosts with the same devices and the same links inside. Hosts that differ, or have one device
each, form one level: a row of devices, host by host. The planner always tries this row, and the fastest device alone,
and returns the candidate with the least bottleneck by its actual groups. On the upper level a host's links are those of
its first device, and each level's all-reduce adds its part. Beyond `EVERY_COUNT` devices or hosts in a row, it tries
only some replica counts.

Cost for D devices on H hosts: O(layers^2 D^2 + layers D^3) for one level, at most O(H layers^3 (D/H)^2) for two; the
search for a cut stops early and takes a small part of that.

Reference: Narayanan et al., PipeDream: generalized pipeline parallelism for DNN training, SOSP 2019.

>>> from penstock.cluster.load import load_cluster
>>> from penstock.profile.load import load_profile
>>> plan = pipedream(Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 10 GB/s"), 8))
>>> plan.num_stages <= 2, len(plan.devices)
(True, 2)
"""

from collections.abc import Sequence
from itertools import product

from penstock.plan import Plan
from penstock.planners.costs import BACKWARD, FORWARD, GroupCosts
from penstock.planners.methods.pipedream.levels import Stage, find_flat, find_levels
from penstock.planners.problem import Problem


def pipedream(
    problem: Problem, *, replication: bool = True, unequal_replicas: bool = True, device_order: bool = True
) -> Plan:
    """Plan the pipeline with the least bottleneck.

    Args:
        problem: The problem.
        replication: Whether stages may have several devices.
        unequal_replicas: Whether stages may have different numbers of replicas.
        device_order: Whether groups may take devices in another order than that of the cluster: whole hosts repeat the
            pipeline of one host.
    """
    group_costs = GroupCosts(problem)
    flat: Sequence[int | None] = [None]
    levels: Sequence[tuple[int, int] | None] = [None]
    if not replication:
        flat, levels = [1], [(1, 1)]
    elif not unequal_replicas:
        flat = range(1, len(group_costs.devices) + 1)
        levels = list(product(range(1, len(group_costs.hosts) + 1), range(1, len(group_costs.hosts[0]) + 1)))
    candidates = [find_levels(group_costs, count) or [] for count in (levels if device_order else ())]
    candidates += [find_flat(group_costs, count, in_order=not device_order) for count in flat]
    candidates.append([Stage(0, problem.profile.num_units, (group_costs.fastest,))])
    best = min(filter(None, candidates), key=lambda stages: bottleneck_s(group_costs, stages))
    cuts = [0, *(stage.stop for stage in best)]
    return problem.plan("pipedream", cuts, [group_costs.plan_group(stage.group) for stage in best])


def bottleneck_s(group_costs: GroupCosts, stages: Sequence[Stage]) -> float:
    """Seconds per micro-batch of the slowest stage (with its part of the all-reduce) or channel."""
    worst = 0.0
    for number, stage in enumerate(stages):
        compute = group_costs.seconds(stage.group, stage.start, stage.stop, FORWARD + BACKWARD)
        size = float(group_costs.parameter_sums[stage.stop] - group_costs.parameter_sums[stage.start])
        reduction = group_costs.reduce_price(stage.group).of(size)
        worst = max(worst, compute + reduction / group_costs.problem.num_microbatches)
        if number > 0:
            channel = group_costs.channel(stages[number - 1].group, stage.group)
            worst = max(worst, channel.both_ways_s(float(group_costs.cut_bytes[stage.start])))
    return worst
