"""A lower bound on the time of an order, at a hundredth of the cost of lowering and simulating it.

Devices follow the given order, messages queue on their links in the order in which they are sent, and the iteration
ends with optimizer steps, reductions and weight returns, each on its own. The estimate leaves out what can only delay:
late receives, shared interfaces, and dependencies among the closing actions. So it is never above the simulated time,
and nearly always equal to it for programs without replication.

A *state* is a kind of job of a replica (F, R, I or B, W); with a micro-batch it is a job. Cost: O(jobs and messages).
"""

from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs
from penstock.program import Kind, Program, program_from_arrays, replicas_of

FORWARD, RECOMPUTE, BACKWARD, WEIGHTS = range(4)
_STATE_OF_KIND = np.full(len(Kind), -1)
_STATE_OF_KIND[[Kind.F, Kind.R, Kind.I, Kind.B, Kind.W]] = FORWARD, RECOMPUTE, BACKWARD, BACKWARD, WEIGHTS
_STAYS_HERE = -1


class Order(NamedTuple):
    """The jobs of all devices, device after device, and how long each takes."""

    offsets: Ints
    jobs: Ints
    seconds: Floats
    """Over all jobs, including those that are not in the order."""
    is_whole: npt.NDArray[np.bool_]
    """Whether a backward is fused."""

    @property
    def seconds_in_order(self) -> Floats:
        """Seconds of each job in the order."""
        return np.asarray(self.seconds[self.jobs])


class Estimator:
    """Estimates orders of one plan."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        num = costs.num_replicas
        flows = costs.flows
        home = costs.forward_device == costs.backward_device
        first = np.where(costs.recompute[costs.replica_stage], RECOMPUTE * num, BACKWARD * num) + np.arange(num)
        ends = flows.source, flows.target
        occupancy = flows.num_bytes / costs.cluster.bandwidth[ends]
        # Rows: source state, target state, flow (or none): in the order of flows, which is that of sends on a link.
        rows: list[tuple[int, int, int]] = []
        rows += [(FORWARD * num + a, FORWARD * num + b, _STAYS_HERE) for a, b in flows.local_forward.tolist()]
        rows += [(BACKWARD * num + a, BACKWARD * num + b, _STAYS_HERE) for a, b in flows.local_backward.tolist()]
        rows += [(FORWARD * num + p, int(first[p]), _STAYS_HERE) for p in np.flatnonzero(home).tolist()]
        again = np.flatnonzero(costs.recompute[costs.replica_stage]).tolist()
        rows += [(RECOMPUTE * num + p, BACKWARD * num + p, _STAYS_HERE) for p in again]
        rows += [(BACKWARD * num + p, WEIGHTS * num + p, _STAYS_HERE) for p in range(num)]
        sides = {ACTIVATION: (FORWARD, FORWARD), GRADIENT: (BACKWARD, BACKWARD), SAVED: (FORWARD, BACKWARD)}
        for flow in np.flatnonzero(flows.what != PARAMETERS).tolist():
            what, source, target = (
                int(flows.what[flow]),
                int(flows.source_replica[flow]),
                int(flows.target_replica[flow]),
            )
            made, used = sides[what]
            state = int(first[target]) if what == SAVED else used * num + target
            rows.append((made * num + source, state, flow))
        table = np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int64).reshape(-1, 3)
        flow_of = table[:, 2]
        _, link_of_flow = np.unique(flows.source * costs.num_devices + flows.target, return_inverse=True)
        self._device_of = np.concatenate([costs.forward_device, *[costs.backward_device] * 3]).astype(np.int64)
        self._seconds = np.concatenate(
            [costs.forward_s, costs.recompute_s, costs.input_grad_s, costs.weight_grad_s]
        ).astype(np.float64)
        self._graph = (
            np.bincount(table[:, 1], minlength=4 * num).astype(np.int64),
            np.searchsorted(table[:, 0], np.arange(4 * num + 1)).astype(np.int64),
            np.ascontiguousarray(table[:, 1]),
            _taken(link_of_flow, flow_of, _STAYS_HERE).astype(np.int64),
            _taken(occupancy, flow_of, 0.0),
            _taken(costs.cluster.latency_s[ends], flow_of, 0.0),
            int(link_of_flow.max(initial=-1)) + 1,
        )
        self._closings = _closings(costs, self._device_of)

    def order_of(self, program: Program) -> Order:
        """The jobs of a program without communication."""
        costs = self.costs
        num = costs.num_microbatches
        replica = replicas_of(program, costs)
        jobs = (_STATE_OF_KIND[program.kind] * costs.num_replicas + replica) * num + program.microbatch
        is_whole = np.zeros(4 * costs.num_replicas * num, dtype=bool)
        is_whole[jobs[program.kind == Kind.B]] = True
        seconds = np.repeat(self._seconds, num)
        seconds[is_whole] = np.repeat(np.tile(costs.backward_s, 4), num)[is_whole]
        return Order(program.offsets, jobs.astype(np.int64), seconds, is_whole)

    def program_of(self, order: Order) -> Program:
        """The program with these jobs."""
        costs = self.costs
        state, microbatch = np.divmod(order.jobs, costs.num_microbatches)
        kind_of, replica = np.divmod(state, costs.num_replicas)
        kinds = np.array([Kind.F, Kind.R, Kind.I, Kind.W], dtype=np.int8)[kind_of]
        kinds[order.is_whole[order.jobs]] = Kind.B
        names = [device.name for device in costs.cluster.devices]
        counts = np.diff(order.offsets)
        return program_from_arrays(costs.plan, names, counts, kinds, costs.replica_stage[replica], microbatch)

    def seconds(self, program: Program) -> float:
        """A lower bound on the iteration time; inf if the order deadlocks."""
        from penstock.schedules.search.estimate_kernel import last_moment, run_order

        order = self.order_of(program)
        num_jobs = len(order.seconds)
        num_needs, begin, target, link, occupancy, latency, num_links = self._graph
        end = np.zeros(num_jobs)
        ended = run_order(
            order.offsets,
            order.jobs,
            self.costs.num_microbatches,
            self._device_of,
            order.seconds,
            num_needs,
            begin,
            target,
            link,
            occupancy,
            latency,
            num_links,
            np.empty(num_jobs),
            end,
            np.empty(num_jobs, dtype=np.int64),
            np.empty(num_jobs, dtype=np.int64),
            np.empty(num_jobs, dtype=np.int64),
            np.empty(num_links),
            np.empty(num_links, dtype=np.int64),
            np.empty(self.costs.num_devices, dtype=np.int64),
            np.empty(self.costs.num_devices + num_jobs, dtype=np.int64),
        )
        return float(last_moment(end, self.costs.num_microbatches, *self._closings)[0]) if ended else np.inf

    def floor_s(self) -> float:
        """A lower bound on the time of every order, with split or fused backwards.

        A device cannot start before one micro-batch has reached it, the iteration cannot end before its last backward
        has travelled back, and in between the device runs all of its passes.
        """
        num, graph = self.costs.num_replicas, self._graph
        seconds = self._seconds.copy()
        seconds[3 * num :] -= self.costs.joined_s
        begin, target, occupancy, latency = graph[1], graph[2], graph[4], graph[5]
        head, tail = np.zeros(4 * num), np.zeros(4 * num)
        turns = np.concatenate([np.arange(2 * num), 3 * num - 1 - np.arange(num), np.arange(3 * num, 4 * num)])
        for state in turns.tolist():
            done = head[state] + seconds[state]
            for entry in range(begin[state], begin[state + 1]):
                arrival = done + occupancy[entry] + latency[entry]
                head[target[entry]] = max(head[target[entry]], arrival)
        for state in turns[::-1].tolist():
            for entry in range(begin[state], begin[state + 1]):
                after = occupancy[entry] + latency[entry] + seconds[target[entry]] + tail[target[entry]]
                tail[state] = max(tail[state], after)
        is_done = np.concatenate([np.ones(num), self.costs.recompute[self.costs.replica_stage], np.ones(2 * num)]) > 0
        # A weight gradient may be part of a fused backward: then followers of the backward wait for it too.
        tail[3 * num :] = 0.0
        load = np.bincount(self._device_of, weights=seconds * is_done, minlength=self.costs.num_devices)
        first, last = np.full(self.costs.num_devices, np.inf), np.full(self.costs.num_devices, np.inf)
        np.minimum.at(first, self._device_of[is_done], head[is_done])
        np.minimum.at(last, self._device_of[is_done], tail[is_done])
        used = np.isfinite(first)
        return float((first + self.costs.num_microbatches * load + last)[used].max())

    def polished(self, program: Program, room: Floats, num_tries: int, tolerance: float, seed: int) -> Program:
        """A better order found by local search (polish.py); the same one if there is none."""
        from penstock.schedules.search.estimate_kernel import run_polish

        order = self.order_of(program)
        before, after = self.kept(order)
        found, _ = run_polish(
            order.offsets,
            order.jobs,
            self.costs.num_microbatches,
            self._device_of,
            order.seconds,
            *self._graph,
            *self._closings,
            before,
            after,
            room,
            num_tries,
            tolerance,
            seed,
        )
        return self.program_of(order._replace(jobs=found))

    def kept(self, order: Order) -> tuple[Floats, Floats]:
        """Over jobs: bytes that each allocates, and that it frees (negative) afterwards."""
        costs = self.costs
        stage = costs.replica_stage
        kept, saved, pending = (
            values[stage] * costs.share for values in (costs.kept_bytes, costs.saved_bytes, costs.pending_bytes)
        )
        home = costs.forward_device == costs.backward_device
        again = costs.recompute[stage]
        nothing = np.zeros(costs.num_replicas)
        before = [
            np.where(home, kept, 0.0),
            np.where(home, 0.0, kept) * again + (saved - kept),
            np.where(home | again, 0.0, kept),
            nothing,
        ]
        after = [nothing, nothing, pending - saved, -pending]
        come, go = (np.repeat(np.concatenate(parts), costs.num_microbatches) for parts in (before, after))
        go[order.is_whole] -= np.repeat(np.tile(pending, 4), costs.num_microbatches)[order.is_whole]
        return come, go


def _taken(values: npt.NDArray[np.generic], flow: Ints, otherwise: float) -> npt.NDArray[np.generic]:
    """The value of each flow, or a default where there is no flow."""
    if not len(values):
        return np.full(len(flow), otherwise)
    return np.where(flow >= 0, values[flow], otherwise)


def _closings(costs: Costs, device_of: Ints) -> tuple[Ints, Ints, Floats]:
    """What closes the iteration: for each its states, all of which must be done, and its seconds."""
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
