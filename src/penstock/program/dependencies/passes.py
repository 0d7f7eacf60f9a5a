"""The dependencies between the passes of one micro-batch, which are the same for all micro-batches.

A forward needs the forward of the stage before it; a backward needs the backward of the stage behind it and its own
forward, or the recompute, which then needs the forward; a weight gradient needs its input gradient. Between devices,
the tensors travel as the flows of the plan.

Passes are numbered as in the job table: kind * replicas + replica.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.arrays import Bools, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs
from penstock.program.actions import NONE
from penstock.program.job_table import BACKWARD, FORWARD, RECOMPUTE, WEIGHTS
from penstock.program.placement import Placement

_Number = TypeVar("_Number", np.int64, np.float64)


class PassEdges(NamedTuple):
    """Edge e: pass target[e] needs pass source[e] of the same micro-batch."""

    source: Ints
    target: Ints
    flow: Ints
    """The flow that carries the tensors; NONE where they stay on the device."""

    def of_flows(self, values: npt.NDArray[_Number], otherwise: float) -> npt.NDArray[_Number]:
        """The value of each edge's flow, or another where there is none."""
        result = np.full(len(self.flow), otherwise, dtype=values.dtype)
        is_sent = self.flow != NONE
        result[is_sent] = values[self.flow[is_sent]]
        return result


def find_pass_edges(costs: Costs) -> PassEdges:
    """All edges of a priced plan: over flows in their order, then between local stages, then within replicas."""
    flows, num = costs.flows, costs.num_replicas
    again = costs.recompute[costs.replica_stage]
    sent = np.flatnonzero(flows.what != PARAMETERS)
    edges = (
        (
            passes_from(flows.what[sent], flows.source_replica[sent], num),
            passes_to(flows.what[sent], flows.target_replica[sent], again),
        ),
        edges_between_stages(flows.local_forward, flows.local_backward, num),
        edges_within_replicas(costs.forward_device == costs.backward_device, again),
    )
    source, target = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    flow = np.concatenate([sent, np.full(len(source) - len(sent), NONE, dtype=np.int64)])
    return PassEdges(source, target, flow)


def passes_from(what: Ints, replica: Ints, num_replicas: int) -> Ints:
    """The passes that produce messages of these contents on these replicas. (Steps produce parameters.)"""
    return np.where(what == GRADIENT, BACKWARD, FORWARD) * num_replicas + replica


def passes_to(what: Ints, replica: Ints, recompute: Bools) -> Ints:
    """The passes that consume messages of these contents on these replicas; NONE for parameters.

    `recompute` tells for every replica whether it recomputes.
    """
    kind = np.where(what == ACTIVATION, FORWARD, BACKWARD)
    kind[(what == SAVED) & recompute[replica]] = RECOMPUTE
    return np.where(what == PARAMETERS, NONE, kind * len(recompute) + replica)


def edges_between_stages(local_forward: Ints, local_backward: Ints, num_replicas: int) -> tuple[Ints, Ints]:
    """Sources and targets of the edges between stages that have rows in common on one device."""
    pairs = np.concatenate([FORWARD * num_replicas + local_forward, BACKWARD * num_replicas + local_backward])
    return pairs[:, 0], pairs[:, 1]


def edges_within_replicas(is_home: Bools, recompute: Bools) -> tuple[Ints, Ints]:
    """Sources and targets of the edges between the passes of each replica.

    Where the backward is not on the forward's device, its saved tensors are a message, and no edge of this kind.
    """
    num = len(is_home)
    replica = np.arange(num)
    home, again = replica[is_home], replica[recompute]
    first = np.where(recompute, RECOMPUTE, BACKWARD) * num + replica
    source = (FORWARD * num + home, RECOMPUTE * num + again, BACKWARD * num + replica)
    target = (first[home], BACKWARD * num + again, WEIGHTS * num + replica)
    return np.concatenate(source), np.concatenate(target)


def local_edges(placement: Placement) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Both kinds of edges on a device, between stages and within replicas, without prices."""
    between = edges_between_stages(placement.local_forward, placement.local_backward, placement.num_replicas)
    again = placement.recompute[placement.replica_stage]
    return between, edges_within_replicas(placement.forward_device == placement.backward_device, again)
