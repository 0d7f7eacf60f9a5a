"""PipeDream: stages, and how many devices share each, with the least bottleneck; level by level of the cluster.

A(i -> j, d) is the least bottleneck of units i up to j on d devices in a row. Its last stage takes the units behind
some cut on the last r of them:

    A(i -> j, d) = min over cuts s and r of max{ A(i -> s, d - r), channel at s, stage s -> j on r devices }

The paper's: that program; two levels, hosts inside and then whole hosts, where a stage of the upper level is the best
pipeline of its units inside a host, repeated on every host that shares the stage (O(units^3 devices^2) inside).

Ours: training is synchronous, so a stage costs its compute seconds for a micro-batch, its rows split over the group by
speed, plus an M-th of the all-reduce, which ends the iteration and has nothing to hide behind (asynchronous training
takes the larger of the two). Transfers between stages always count: both ways, with their latency (a pipeline of few
micro-batches in flight does not hide it), between the very devices and over the shared interfaces. The best r before a
cut is found for each r behind it, so that this costs no more. Devices may be left idle at the end of the row.

The levels need hosts with the same devices and the same links inside. Hosts that differ, or have one device each, are
one level: a row of devices, host by host. That row is always tried, and so is the fastest device alone; the least
bottleneck of the groups as they are is the plan. On the upper level a host's links are those of its first device, and
each level's all-reduce adds its part. Beyond `EVERY_COUNT` devices or hosts in a row, not all replica counts are tried.

Cost for D devices on H hosts: one level O(units^2 D^2 + units D^3), levels O(H units^3 (D/H)^2) at most; the search
for a cut stops early and takes a small part of that.

Reference: Narayanan et al., PipeDream: generalized pipeline parallelism for DNN training, SOSP 2019.

>>> from penstock.cluster.load import load_cluster
>>> from penstock.profile.load import load_profile
>>> plan = pipedream(Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 10 GB/s"), 8))
>>> plan.num_stages <= 2, len(plan.devices)
(True, 2)
"""

from collections.abc import Sequence

from penstock.plan import Plan
from penstock.planners.costs import BACKWARD, FORWARD, Replicas
from penstock.planners.methods.pipedream.levels import Stage, find_flat, find_levels
from penstock.planners.problem import Problem


def pipedream(problem: Problem, *, replication: bool = True) -> Plan:
    """The pipeline with the least bottleneck; without `replication`, one device a stage."""
    replicas = Replicas(problem)
    candidates = [
        find_levels(replicas, replication=replication) or [],
        find_flat(replicas, replication=replication),
        [Stage(0, problem.profile.num_units, (replicas.fastest,))],
    ]
    best = min(filter(None, candidates), key=lambda stages: bottleneck_s(replicas, stages))
    cuts = [0, *(stage.stop for stage in best)]
    return problem.plan("pipedream", cuts, [replicas.replicas(stage.group) for stage in best])


def bottleneck_s(replicas: Replicas, stages: Sequence[Stage]) -> float:
    """The most seconds for one micro-batch that a stage (with its part of the all-reduce) or a channel takes."""
    worst = 0.0
    for number, stage in enumerate(stages):
        compute = replicas.seconds(stage.group, stage.start, stage.stop, FORWARD + BACKWARD)
        size = float(replicas.parameter_sums[stage.stop] - replicas.parameter_sums[stage.start])
        reduction = replicas.reduce_price(stage.group).of(size)
        worst = max(worst, compute + reduction / replicas.problem.num_microbatches)
        if number > 0:
            channel = replicas.channel(stages[number - 1].group, stage.group)
            worst = max(worst, channel.both_ways_s(float(replicas.cut_bytes[stage.start])))
    return worst
