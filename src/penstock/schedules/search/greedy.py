"""List scheduling: every device runs the best pass that is ready, with real costs, real delays and bounded memory.

An idle device runs, in this order of preference: an input gradient that is ready (the oldest micro-batch; it is on the
critical path, and frees memory); a forward that is ready and has room (the latest stage); a weight gradient that is
due (the oldest), unless something better arrives before `patience` of it would be done; else it waits. Room is what a
device may keep of saved tensors; a forward leaves room for one micro-batch in each later stage of its device, so that
memory cannot fill up with micro-batches that need more of it to go on. Cost: O(jobs (stages a device + log devices)).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, SAVED, Costs, Flows
from penstock.program import Program, program_from_arrays


class Rules(NamedTuple):
    """The parameters of list scheduling."""

    split: bool
    """Whether backwards are split."""
    room: Floats
    """Bytes of saved tensors that each device may keep; the first micro-batch always passes."""
    patience: float = 0.5
    later_first: bool = True
    """Prefer forwards of later stages; else of earlier ones."""


class Greedy:
    """List scheduling of one plan."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        flows = costs.flows
        delay = costs.delay_s
        self._forward = _lists(flows.local_forward, flows, flows.what == ACTIVATION, delay, costs.num_replicas)
        self._backward = _lists(flows.local_backward, flows, flows.what == GRADIENT, delay, costs.num_replicas)
        self._saved_delay = np.zeros(costs.num_replicas)
        moved = flows.what == SAVED
        self._saved_delay[flows.target_replica[moved]] = delay[moved]
        self.kept = (costs.kept_bytes[costs.replica_stage] * costs.share).astype(np.float64)
        self._forward_wakes = _wakes(
            np.concatenate([_pairs(self._forward, costs.forward_device), _own(costs)]), costs.num_replicas
        )
        self._backward_wakes = _wakes(_pairs(self._backward, costs.backward_device), costs.num_replicas)
        self._reserve = _reserve(costs, self.kept)

    def run(self, rules: Rules) -> Program | None:
        """The program by these rules; None if they leave too little room to end."""
        found = self.timed(rules)
        return found[0] if found else None

    def timed(self, rules: Rules) -> tuple[Program, float] | None:
        """The program and its time by the scheduler's own clock, which leaves out link queues and reductions."""
        from penstock.schedules.search.greedy_kernel import run_greedy

        costs = self.costs
        rank = costs.replica_stage.astype(np.float64) * (1.0 if rules.later_first else -1.0)
        counts, kind, replica, microbatch, seconds, complete = run_greedy(
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
            self._forward.begin,
            self._forward.values,
            self._forward.delay,
            self._backward.begin,
            self._backward.values,
            self._backward.delay,
            self._saved_delay,
            *self._forward_wakes,
            *self._backward_wakes,
            self.kept,
            rules.room,
            self._reserve,
            rank,
            rules.split,
            rules.patience,
        )
        if not complete:
            return None
        names = [device.name for device in costs.cluster.devices]
        program = program_from_arrays(costs.plan, names, counts, kind, costs.replica_stage[replica], microbatch)
        return program, float(seconds)


class _Lists(NamedTuple):
    begin: Ints
    values: Ints
    delay: Floats
    target: Ints


def _lists(local: Ints, flows: Flows, mask: npt.NDArray[np.bool_], delay: Floats, num_replicas: int) -> _Lists:
    """For each target replica its source replicas with their delays."""
    target = np.concatenate([local[:, 1], flows.target_replica[mask]])
    source = np.concatenate([local[:, 0], flows.source_replica[mask]])
    delays = np.concatenate([np.zeros(len(local)), delay[mask]])
    order = np.argsort(target, kind="stable")
    begin = np.searchsorted(target[order], np.arange(num_replicas + 1)).astype(np.int64)
    return _Lists(begin, source[order], delays[order], target[order])


def _pairs(lists: _Lists, device: Ints) -> Ints:
    """(source replica, device of the target replica)."""
    return np.stack([lists.values, device[lists.target]], axis=1)


def _own(costs: Costs) -> Ints:
    """A forward also wakes the device of its own backward."""
    return np.stack([np.arange(costs.num_replicas), costs.backward_device], axis=1)


def _wakes(pairs: Ints, num_replicas: int) -> tuple[Ints, Ints]:
    order = np.argsort(pairs[:, 0], kind="stable")
    begin = np.searchsorted(pairs[order, 0], np.arange(num_replicas + 1)).astype(np.int64)
    return begin, np.ascontiguousarray(pairs[order, 1])


def _reserve(costs: Costs, kept: Floats) -> Floats:
    """Room that a forward must leave: one micro-batch of each later stage of its device."""
    found = np.zeros(costs.num_replicas)
    home = costs.forward_device == costs.backward_device
    for replica in np.flatnonzero(home).tolist():
        later = home & (costs.forward_device == costs.forward_device[replica])
        later &= costs.replica_stage > costs.replica_stage[replica]
        found[replica] = kept[later].sum()
    return found
