"""What list scheduling knows of a plan: its passes, what they wait for, and which devices they wake. See greedy.py."""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.plan.pricing import SAVED, Costs
from penstock.program import BACKWARD, FORWARD, NONE, PassEdges, find_pass_edges


class Sources(NamedTuple):
    """Over replicas: the replicas that a pass receives from, and how long their messages take."""

    begin: Ints
    replica: Ints
    delay: Floats


class Wakes(NamedTuple):
    """Over replicas: the devices that a pass may wake."""

    begin: Ints
    device: Ints


class PassGraph(NamedTuple):
    """The passes of all replicas. The kernel takes it as it is."""

    num_devices: int
    num_microbatches: int
    forward_device: Ints
    backward_device: Ints
    forward_s: Floats
    recompute_s: Floats
    input_grad_s: Floats
    weight_grad_s: Floats
    backward_s: Floats
    is_recomputed: Bools
    forward: Sources
    backward: Sources
    saved_delay: Floats
    """How long the saved tensors of a remote backward take."""
    forward_wakes: Wakes
    backward_wakes: Wakes
    kept: Floats
    """Bytes that a forward keeps for its backward."""
    reserve: Floats
    """Room that a forward must leave: one micro-batch of each later stage of its device."""


def make_pass_graph(costs: Costs) -> PassGraph:
    """The passes of a priced plan."""
    flows = costs.flows
    delay = costs.delay_s
    edges = find_pass_edges(costs)
    forward, forward_target = _sources(edges, FORWARD, costs)
    backward, backward_target = _sources(edges, BACKWARD, costs)
    saved_delay = np.zeros(costs.num_replicas)
    remote = flows.what == SAVED
    saved_delay[flows.target_replica[remote]] = delay[remote]
    replicas = np.arange(costs.num_replicas)
    kept = (costs.kept_bytes[costs.replica_stage] * costs.share).astype(np.float64)
    return PassGraph(
        costs.num_devices,
        costs.num_microbatches,
        costs.forward_device,
        costs.backward_device,
        costs.forward_s,
        costs.recompute_s,
        costs.input_grad_s,
        costs.weight_grad_s,
        costs.backward_s,
        costs.recompute[costs.replica_stage],
        forward,
        backward,
        saved_delay,
        # A forward also wakes the device of its own backward.
        _wakes(
            np.concatenate([forward.replica, replicas]),
            np.concatenate([costs.forward_device[forward_target], costs.backward_device]),
            costs.num_replicas,
        ),
        _wakes(backward.replica, costs.backward_device[backward_target], costs.num_replicas),
        kept,
        _reserve(costs, kept),
    )


def _sources(edges: PassEdges, kind: int, costs: Costs) -> tuple[Sources, Ints]:
    """For each target replica its source replicas with their delays; and the targets, entry by entry."""
    num = costs.num_replicas
    chosen = np.flatnonzero((edges.source // num == kind) & (edges.target // num == kind))
    order = chosen[np.lexsort((edges.flow[chosen] != NONE, edges.target[chosen]))]
    target = edges.target[order] % num
    begin = np.searchsorted(target, np.arange(num + 1)).astype(np.int64)
    return Sources(begin, edges.source[order] % num, edges.of_flows(costs.delay_s, 0.0)[order]), target


def _wakes(source: Ints, device: Ints, num_replicas: int) -> Wakes:
    order = np.argsort(source, kind="stable")
    begin = np.searchsorted(source[order], np.arange(num_replicas + 1)).astype(np.int64)
    return Wakes(begin, device[order])


def _reserve(costs: Costs, kept: Floats) -> Floats:
    home = costs.forward_device == costs.backward_device
    device, stage = costs.forward_device, costs.replica_stage
    is_later = (device[:, None] == device) & (stage[:, None] < stage) & home[:, None] & home
    return np.array([kept[row].sum() for row in is_later])
