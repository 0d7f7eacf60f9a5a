"""A lower bound on the time of an order, at a hundredth of the cost of lowering and simulating it.

Devices follow the given order, messages queue on their links in the order in which they are sent, and the iteration
ends with optimizer steps, reductions and weight returns, each on its own. The estimate leaves out what can only delay:
late receives, shared interfaces, and dependencies among the closing actions. So it is never above the simulated time,
and nearly always equal to it for programs without replication.

Jobs and their dependencies: job_graph.py. Cost: O(jobs and messages).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import Costs
from penstock.program import BACKWARD, FORWARD, RECOMPUTE, WEIGHTS, Kind, Program, program_from_arrays, replicas_of
from penstock.schedules.search.job_graph import make_job_graph

_STATE_OF_KIND = np.full(len(Kind), -1)
_STATE_OF_KIND[[Kind.F, Kind.R, Kind.I, Kind.B, Kind.W]] = FORWARD, RECOMPUTE, BACKWARD, BACKWARD, WEIGHTS

ROUNDING = 1e-12
"""The floor is lowered by this fraction, so that it is below every order despite rounding of sums."""


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
        self._graph = make_job_graph(costs)
        self._seconds = np.concatenate(
            [costs.forward_s, costs.recompute_s, costs.input_grad_s, costs.weight_grad_s]
        ).astype(np.float64)

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
        from penstock.schedules.search.estimate_kernel import time_order

        order = self.order_of(program)
        return float(time_order(order.offsets, order.jobs, order.seconds, self._graph))

    def floor_s(self) -> float:
        """A lower bound on the time of every order, with split or fused backwards.

        A device cannot start before one micro-batch has reached it, then it runs all of its passes, and after the last
        of them the iteration still needs what follows that pass: a backward through the earlier stages, reductions,
        optimizer steps.
        """
        num, num_devices, graph = self.costs.num_replicas, self.costs.num_devices, self._graph
        seconds = self._seconds.copy()
        seconds[WEIGHTS * num :] -= self.costs.joined_s
        head, tail = np.zeros(4 * num), np.zeros(4 * num)
        np.maximum.at(tail, graph.closing_state, np.repeat(graph.closing_s, np.diff(graph.closing_begin)))
        transfer_s = (graph.occupancy + graph.latency).tolist()
        begin, target = graph.begin.tolist(), graph.target.tolist()
        turns = [*range(2 * num), *range(3 * num - 1, 2 * num - 1, -1), *range(3 * num, 4 * num)]
        for state in turns:
            done = head[state] + seconds[state]
            for entry in range(begin[state], begin[state + 1]):
                head[target[entry]] = max(head[target[entry]], done + transfer_s[entry])
        for state in reversed(turns):
            for entry in range(begin[state], begin[state + 1]):
                after = transfer_s[entry] + seconds[target[entry]] + tail[target[entry]]
                tail[state] = max(tail[state], after)
        is_done = np.concatenate([np.ones(num), self.costs.recompute[self.costs.replica_stage], np.ones(2 * num)]) > 0
        load = np.bincount(graph.device_of, weights=seconds * is_done, minlength=num_devices)
        first, last = np.full(num_devices, np.inf), np.full(num_devices, np.inf)
        np.minimum.at(first, graph.device_of[is_done], head[is_done])
        np.minimum.at(last, graph.device_of[is_done], tail[is_done])
        used = np.isfinite(first)
        return float((first + self.costs.num_microbatches * load + last)[used].max()) * (1.0 - ROUNDING)

    def polished(self, program: Program, room: Floats, num_tries: int, tolerance: float, seed: int) -> Program:
        """A better order found by local search (polish.py); the same one if there is none."""
        from penstock.schedules.search.polish_kernel import Memory, run_polish

        order = self.order_of(program)
        memory = Memory(*self.kept(order), room)
        jobs, _ = run_polish(order.offsets, order.jobs, order.seconds, self._graph, memory, num_tries, tolerance, seed)
        return self.program_of(order._replace(jobs=jobs))

    def held(self, order: Order) -> Floats:
        """Over devices: the most that the jobs keep."""
        before, after = self.kept(order)
        come, go = before[order.jobs], after[order.jobs]
        found = np.zeros(len(order.offsets) - 1)
        for device, (first, last) in enumerate(zip(order.offsets[:-1], order.offsets[1:], strict=True)):
            running = np.cumsum(come[first:last]) + np.cumsum(go[first:last]) - go[first:last]
            found[device] = running.max(initial=0.0)
        return found

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
