"""The dependencies between the passes of a plan, and the actions that close its iteration.

A *state* is a kind of pass of a replica (F, R, I or B, W); with a micro-batch it is a *job*. The graph over states is
the same for every micro-batch.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs

FORWARD, RECOMPUTE, BACKWARD, WEIGHTS = range(4)
"""State = kind * replicas + replica."""
SAME_DEVICE = -1
"""The link of a dependency within a device."""


class JobGraph(NamedTuple):
    """Dependencies between states, and closing actions. The kernels take it as it is.

    The dependents of a state are `target[begin[state] : begin[state + 1]]`, in the order of their messages on a link.
    """

    num_microbatches: int
    device_of: Ints
    """Over states."""
    num_needs: Ints
    """Over states: how many dependencies each has."""
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
    num = costs.num_replicas
    flows = costs.flows
    is_recomputed = costs.recompute[costs.replica_stage]
    home = np.flatnonzero(costs.forward_device == costs.backward_device)
    again = np.flatnonzero(is_recomputed)
    replicas = np.arange(num)
    first = np.where(is_recomputed, RECOMPUTE * num, BACKWARD * num) + replicas
    every = np.flatnonzero(flows.what != PARAMETERS)
    what, sent_by, needed_by = flows.what[every], flows.source_replica[every], flows.target_replica[every]
    # Stable sorting keeps the order of flows, which is that of sends on a link.
    source = np.concatenate(
        [
            FORWARD * num + flows.local_forward[:, 0],
            BACKWARD * num + flows.local_backward[:, 0],
            FORWARD * num + home,
            RECOMPUTE * num + again,
            BACKWARD * num + replicas,
            np.where(what == GRADIENT, BACKWARD * num, FORWARD * num) + sent_by,
        ]
    )
    target = np.concatenate(
        [
            FORWARD * num + flows.local_forward[:, 1],
            BACKWARD * num + flows.local_backward[:, 1],
            first[home],
            BACKWARD * num + again,
            WEIGHTS * num + replicas,
            np.select(
                [what == ACTIVATION, what == GRADIENT, what == SAVED],
                [FORWARD * num + needed_by, BACKWARD * num + needed_by, first[needed_by]],
            ),
        ]
    )
    flow = np.concatenate([np.full(len(source) - len(every), SAME_DEVICE), every])
    order = np.argsort(source, kind="stable")
    source, target, flow = source[order], target[order], flow[order]
    ends = flows.source, flows.target
    _, link_of = np.unique(flows.source * costs.num_devices + flows.target, return_inverse=True)
    device_of = np.concatenate([costs.forward_device, *[costs.backward_device] * 3]).astype(np.int64)
    return JobGraph(
        costs.num_microbatches,
        device_of,
        np.bincount(target, minlength=4 * num).astype(np.int64),
        np.searchsorted(source, np.arange(4 * num + 1)).astype(np.int64),
        target.astype(np.int64),
        _of_flow(link_of, flow, SAME_DEVICE).astype(np.int64),
        _of_flow(flows.num_bytes / costs.cluster.bandwidth[ends], flow, 0.0),
        _of_flow(costs.cluster.latency_s[ends], flow, 0.0),
        int(link_of.max(initial=-1)) + 1,
        *_closings(costs, device_of),
    )


def _of_flow(values: npt.ArrayLike, flow: Ints, otherwise: float) -> Floats:
    """The value of each flow, or a default where there is no flow."""
    return np.append(np.asarray(values, dtype=np.float64), otherwise)[flow]


def _closings(costs: Costs, device_of: Ints) -> tuple[Ints, Ints, Floats]:
    """For each closing action its states, and its seconds."""
    num = costs.num_replicas
    steps = np.bincount(costs.backward_device, weights=costs.step_s, minlength=costs.num_devices)
    by_device = np.argsort(device_of, kind="stable")
    bounds = np.searchsorted(device_of[by_device], np.arange(costs.num_devices + 1))
    states = [by_device[bounds[device] : bounds[device + 1]] for device in range(costs.num_devices)]
    seconds = steps.tolist()
    for reduction in costs.reductions:
        replicas = np.concatenate([np.arange(num)[costs.replicas(stage)] for stage in reduction.stages])
        states.append(np.concatenate([BACKWARD * num + replicas, WEIGHTS * num + replicas]))
        seconds.append(reduction.ring.occupancy_s + reduction.ring.latency_s + float(costs.step_s[replicas].min()))
    flows = costs.flows
    for flow in np.flatnonzero(flows.what == PARAMETERS).tolist():
        states.append(states[int(flows.source[flow])])
        seconds.append(float(costs.step_s[flows.source_replica[flow]]) + float(costs.delay_s[flow]))
    begin = np.concatenate([[0], np.cumsum([len(entry) for entry in states])]).astype(np.int64)
    return begin, np.fromiter(chain.from_iterable(states), dtype=np.int64, count=int(begin[-1])), np.array(seconds)
