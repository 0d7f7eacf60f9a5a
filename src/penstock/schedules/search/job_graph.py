"""The dependencies between the passes of a plan, and the actions that close its iteration, as the kernels take them.

A *state* is a pass of a replica (F, R, I or B, W), numbered kind * replicas + replica; with a micro-batch it is a
*job*. The graph over states is the same for every micro-batch.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import PARAMETERS, Costs
from penstock.program import BACKWARD, NONE, WEIGHTS, find_pass_edges

SAME_DEVICE = -1
"""The link of a dependency within a device."""


class JobGraph(NamedTuple):
    """Dependencies between states, and closing actions. The kernels receive it as an argument.

    The dependents of a state are `target[begin[state] : begin[state + 1]]`, in the order of their messages on a link.
    """

    num_microbatches: int
    device_of: Ints
    """Over states."""
    num_needs: Ints
    """Over states: number of dependencies."""
    begin: Ints
    target: Ints
    link: Ints
    occupancy: Floats
    latency: Floats
    num_links: int
    closing_begin: Ints
    closing_state: Ints
    closing_s: Floats
    """Over closing actions: optimizer steps, one per device, then reductions and weight returns. Each begins when all
    jobs of its states are done."""


def make_job_graph(costs: Costs) -> JobGraph:
    """The graph of a priced plan."""
    num, flows = costs.num_replicas, costs.flows
    edges = find_pass_edges(costs)
    # The order of flows is that of sends on a link.
    order = np.lexsort((edges.flow != NONE, edges.source))
    source, target = edges.source[order], edges.target[order]
    ends = flows.source, flows.target
    _, link_of = np.unique(flows.source * costs.num_devices + flows.target, return_inverse=True)
    device_of = np.concatenate([costs.forward_device, *[costs.backward_device] * 3]).astype(np.int64)
    return JobGraph(
        costs.num_microbatches,
        device_of,
        np.bincount(target, minlength=4 * num).astype(np.int64),
        np.searchsorted(source, np.arange(4 * num + 1)).astype(np.int64),
        target.astype(np.int64),
        edges.of_flows(link_of, SAME_DEVICE)[order],
        edges.of_flows(flows.num_bytes / costs.cluster.bandwidth[ends], 0.0)[order],
        edges.of_flows(costs.cluster.latency_s[ends], 0.0)[order],
        int(link_of.max(initial=-1)) + 1,
        *_closings(costs, device_of),
    )


def _closings(costs: Costs, device_of: Ints) -> tuple[Ints, Ints, Floats]:
    """For each closing action its states, and its seconds."""
    num = costs.num_replicas
    steps = np.bincount(costs.backward_device, weights=costs.step_s, minlength=costs.num_devices)
    by_device = np.argsort(device_of, kind="stable")
    bounds = np.searchsorted(device_of[by_device], np.arange(costs.num_devices + 1))
    states = [by_device[bounds[device] : bounds[device + 1]] for device in range(costs.num_devices)]
    seconds = steps.tolist()
    gather_s = {item.number: item.ring.occupancy_s + item.ring.latency_s for item in costs.gathers}
    for reduction in costs.reductions:
        replicas = np.concatenate([np.arange(num)[costs.replicas(stage)] for stage in reduction.stages])
        states.append(np.concatenate([BACKWARD * num + replicas, WEIGHTS * num + replicas]))
        after_s = 0.0 if reduction.is_tie else gather_s.get(reduction.number, 0.0)
        reduce_s = reduction.ring.occupancy_s + reduction.ring.latency_s
        seconds.append(reduce_s + float(costs.step_s[replicas].min()) + after_s)
    flows = costs.flows
    for flow in np.flatnonzero(flows.what == PARAMETERS).tolist():
        states.append(states[int(flows.source[flow])])
        seconds.append(float(costs.step_s[flows.source_replica[flow]]) + float(costs.delay_s[flow]))
    begin = np.concatenate([[0], np.cumsum([len(entry) for entry in states])]).astype(np.int64)
    return begin, np.fromiter(chain.from_iterable(states), dtype=np.int64, count=int(begin[-1])), np.array(seconds)
