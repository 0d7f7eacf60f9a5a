"""SPP: order devices along fast links, cut, replicate and map on that order, and order micro-batches greedily.

1. Order the devices by recursive minimum cuts (device_order.py, RDO); use the order from both ends.
2. For every number of stages, find the cuts and groups with the least bottleneck (partition.py, PRM).
3. For each of them, order the micro-batches (schedules/methods/pe.py, PE); keep the fastest plan.

The steps are the paper's, with the differences that their files describe. Added here: the simulator evaluates every
candidate with latency, interfaces, ties and optimizer steps; candidates whose stages or links alone take longer than
the best plan are skipped; pipelines without replicas and plain data parallelism are always candidates, so SPP is never
worse than these on its own order. Memory limits are ignored. The table counts gradients of frozen layers at every cut,
although none cross in front of the first trained layer. Cost: that of the table, O(D^4 U) for D devices and U
layers, and at most some D simulations.

Reference: Luo et al., Efficient Pipeline Planning for Expedited Distributed DNN Training, 2022.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf

import numpy as np

from penstock.errors import ProofError
from penstock.plan import SHARE_TOLERANCE, Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.methods.spp.device_order import order_devices
from penstock.planners.methods.spp.partition import Partition, Row, partitions
from penstock.planners.problem import Problem
from penstock.schedules.methods import pe
from penstock.simulate import evaluate_costs


def spp(
    problem: Problem, *, replication: bool = True, unequal_replicas: bool = True, device_order: bool = True
) -> Plan:
    """Plan the fastest of the best partitions for all numbers of stages.

    Args:
        problem: The problem.
        replication: Whether stages may have several devices.
        unequal_replicas: Whether stages may have different numbers of replicas.
        device_order: Whether devices may be in another order than that of the cluster.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.profile.load import load_profile
    >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
    >>> [[replica.device for replica in stage.forward] for stage in spp(problem).stages]
    [['d0'], ['d1']]
    """
    best: tuple[float, Plan] | None = None
    cluster_order = list(range(problem.pipeline_depth or problem.cluster.num_devices))
    orders = device_orders(problem) if device_order else [cluster_order]
    sizes: Sequence[int | None] = [None] if unequal_replicas or not replication else range(1, len(cluster_order) + 1)
    candidates = [item for order in orders for size in sizes for item in _candidates(problem, order, replication, size)]
    for item in sorted(candidates, key=lambda item: (item.bottleneck_s, len(item.groups))):
        if best is not None and item.least_s >= best[0]:
            continue
        plan = problem.plan("spp", item.cuts, item.groups)
        costs = price(plan, problem.profile, problem.cluster, clock=problem.clock)
        if best is None or least_seconds(costs) < best[0]:
            seconds = _iteration_s(costs)
            if best is None or seconds < best[0]:
                best = seconds, plan
    assert best is not None, "one stage on one device is always a candidate"
    return best[1]


def _iteration_s(costs: Costs) -> float:
    """Simulated seconds; infinite for a plan that training refuses."""
    try:
        return evaluate_costs(costs, program=pe(costs), within_memory=False).timeline.iteration_s
    except ProofError:
        return inf


def device_orders(problem: Problem) -> Iterator[list[int]]:
    """Yield the order of the devices, and its reverse unless that is equivalent."""
    cluster = problem.cluster
    order = order_devices(cluster, problem.pipeline_depth)
    yield order
    back = order[::-1]
    host_of = cluster.host_index[order]
    matrices = [cluster.bandwidth, cluster.latency_s]
    links = [matrix[np.ix_(order, order)] for matrix in matrices] + [host_of[:, None] == host_of[None, :]]
    devices = [
        (cluster.devices[device].kind, cluster.devices[device].speed, cluster.hosts[host].interface_bandwidth)
        for device, host in zip(order, host_of.tolist(), strict=True)
    ]
    if devices != devices[::-1] or any(not np.array_equal(matrix, matrix[::-1, ::-1]) for matrix in links):
        yield back


def _candidates(problem: Problem, order: list[int], replication: bool, num_replicas: int | None) -> Iterator[Partition]:
    """Yield one stage on all devices, and the best partitions with and without replicas, each once.

    With `num_replicas`, only the best partitions in which every stage has that many.
    """
    if num_replicas is not None:
        yield from partitions(problem, order, num_replicas=num_replicas)
        return
    if not replication:
        yield from partitions(problem, order, replication=False)
        return
    seen = set()
    row = Row(problem, order)
    whole = []
    if len(order) == 1 or row.shares(0, len(order)).min() > 2 * SHARE_TOLERANCE:
        whole.append(Partition((0, problem.profile.num_units), (row.group(0, len(order)),), 0.0, 0.0))
    for item in [*whole, *partitions(problem, order), *partitions(problem, order, replication=False)]:
        if item[:2] not in seen:
            seen.add(item[:2])
            yield item


def least_seconds(costs: Costs) -> float:
    """A lower bound on the iteration time of a plan without remote backwards, for any order of its actions.

    A stage waits for its first input, does all its work, and then reduces its gradients or, if its backward is fused,
    waits until the last gradient reaches the first stage. A link carries all of its transfers.
    """
    num = costs.num_microbatches
    work = costs.forward_s + costs.backward_s
    reduce_s = {item.number: item.ring for item in costs.reductions if not item.is_tie}
    fill, drain, least = 0.0, 0.0, 0.0
    for stage, (begin, end) in enumerate(pairwise(costs.replica_offsets.tolist())):
        ring = reduce_s.get(stage)
        closing = 0.0 if ring is None else ring.occupancy_s + ring.latency_s
        least = max(least, fill + num * float(work[begin:end].max()) + max(closing, drain))
        fill += float(costs.forward_s[begin:end].min())
        if not costs.plan.split_backward:
            drain += float(costs.backward_s[begin:end].min())
    flows = costs.flows
    rate = costs.cluster.bandwidth[flows.source, flows.target]
    return max(least, float((num * flows.num_bytes / rate).max(initial=0.0)))
