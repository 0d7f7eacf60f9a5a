"""The best order of a priced plan without replication, by constraint programming (OR-tools' CP-SAT, optional).

Jobs are F, R, I, W of every stage and micro-batch, the optimizer steps, and every transfer. Where the layers of a stage
require fused backwards, its I has the time of the whole backward, and its W follows without taking any. Micro-batches
are alike, so some best order has the jobs of one kind and stage in the order of their micro-batches: sorting their
times, kind by kind, keeps every dependency (if x_m + c <= y_m for all m, then also when both are sorted) and leaves
every device and link as busy as before. Transfers on a link run in the order of their producers; steps come after all
other jobs of their device; receives are posted early enough.

Times are rounded down to integer ticks, with `TICKS` ticks in the time to beat. So the solver's bound is valid; the
simulator times its order again.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.plan.pricing import PARAMETERS, Costs
from penstock.program import NONE, SPLIT_KINDS, Kind, find_pass_edges

TICKS = 2**30

Job = tuple[Kind, int, int]
"""Kind, stage, micro-batch."""


@dataclass(frozen=True)
class BestOrder:
    """The solver's result.

    Attributes:
        orders: The order of compute jobs and steps of every device; None if no order beats the limit.
        at_least_s: No order of this plan is faster than this, or than the limit.
        is_closed: Whether the solver finished: the order is optimal, or there is none within the limit.
    """

    orders: tuple[tuple[Job, ...], ...] | None
    at_least_s: float
    is_closed: bool


def best_order(costs: Costs, limit_s: float, *, seconds: float = 60.0, seed: int = 0) -> BestOrder:
    """Find the best order of a plan's jobs that takes at most `limit_s` (above 0)."""
    model = _Model(costs, limit_s)
    return model.solve(seconds, seed)


class _Model:
    def __init__(self, costs: Costs, limit_s: float) -> None:
        cp_model = _solver()
        self.cp, self.costs = cp_model, costs
        self.edges = find_pass_edges(costs)
        self.num = costs.num_microbatches
        self.tick_s = limit_s / TICKS
        self.model = cp_model.CpModel()
        self.limit = TICKS
        self.start: dict[Job, Any] = {}
        self.size: dict[Job, int] = {}
        self.on_device: dict[int, list[Job]] = defaultdict(list)
        self.end = self.model.new_int_var(0, self.limit, "end")
        self._jobs()
        self._links()
        for jobs in self.on_device.values():
            self.model.add_no_overlap([self._interval(self.start[job], self.size[job]) for job in jobs])
            self._steps_last(jobs)
        self.model.minimize(self.end)

    def _ticks(self, seconds: float) -> int:
        # Cap durations above the limit: they are infeasible anyway, and sums must not overflow in the solver.
        return int(min(seconds / self.tick_s, TICKS + 1)) if self.tick_s > 0 else 0

    def _interval(self, start: Any, size: int) -> Any:
        return self.model.new_fixed_size_interval_var(start, size, "")

    def _after(self, later: Any, earlier: Any, ticks: int) -> None:
        self.model.add(later >= earlier + ticks)

    def _jobs(self) -> None:
        costs = self.costs
        within, between = self._local_edges()
        no_s = np.zeros(costs.num_replicas)
        for replica, stage in enumerate(costs.replica_stage.tolist()):
            forward_device, backward_device = int(costs.forward_device[replica]), int(costs.backward_device[replica])
            kinds = [(Kind.F, forward_device, costs.forward_s)]
            if costs.recompute[stage]:
                kinds.append((Kind.R, backward_device, costs.recompute_s))
            is_fused = stage in costs.restrictions.fused
            seconds_i, seconds_w = (costs.backward_s, no_s) if is_fused else (costs.input_grad_s, costs.weight_grad_s)
            kinds += [(Kind.I, backward_device, seconds_i), (Kind.W, backward_device, seconds_w)]
            for kind, device, seconds in kinds:
                ticks = self._ticks(float(seconds[replica]))
                for number in range(self.num):
                    self._job((kind, stage, number), device, ticks)
                for number in range(1, self.num):
                    self._follow((kind, stage, number - 1), (kind, stage, number))
            for number in range(self.num):
                for source, target in within[replica]:
                    self._follow(self._pass(source, number), self._pass(target, number))
                if is_fused:
                    of_inputs, of_weights = (Kind.I, stage, number), (Kind.W, stage, number)
                    self.model.add(self.start[of_weights] == self.start[of_inputs] + self.size[of_inputs])
            step = (Kind.STEP, stage, 0)
            self._job(step, backward_device, self._ticks(float(costs.step_s[replica])))
            self.model.add(self.end >= self.start[step] + self.size[step])
        for source, target in between:
            for number in range(self.num):
                self._follow(self._pass(source, number), self._pass(target, number))

    def _pass(self, index: int, number: int) -> Job:
        kind, replica = divmod(index, self.costs.num_replicas)
        return SPLIT_KINDS[kind], int(self.costs.replica_stage[replica]), number

    def _local_edges(self) -> tuple[dict[int, list[tuple[int, int]]], list[tuple[int, int]]]:
        """Edges between passes on one device: by replica those within it, and those between stages."""
        edges, num = self.edges, self.costs.num_replicas
        within: dict[int, list[tuple[int, int]]] = defaultdict(list)
        between = []
        for source, target, flow in zip(*(values.tolist() for values in edges), strict=True):
            if flow == NONE and source % num == target % num:
                within[source % num].append((source, target))
            elif flow == NONE:
                between.append((source, target))
        return within, between

    def _job(self, job: Job, device: int, ticks: int) -> None:
        self.start[job] = self.model.new_int_var(0, self.limit, "")
        self.size[job] = ticks
        self.on_device[device].append(job)

    def _follow(self, earlier: Job, later: Job) -> None:
        self._after(self.start[later], self.start[earlier], self.size[earlier])

    def _steps_last(self, jobs: list[Job]) -> None:
        steps = [job for job in jobs if job[0] == Kind.STEP]
        others = {(kind, stage): self.num - 1 for kind, stage, _ in jobs if kind.is_pass}
        for step in steps:
            for (kind, stage), last in others.items():
                self._follow((kind, stage, last), step)

    def _links(self) -> None:
        costs, flows = self.costs, self.costs.flows
        on_link: dict[tuple[int, int], list[tuple[int, Any, int]]] = defaultdict(list)
        interfaces: dict[tuple[int, bool], list[tuple[Any, int]]] = defaultdict(list)
        producers: dict[tuple[int, int], Job] = {}
        starts: dict[tuple[int, int], Any] = {}
        sizes: dict[int, int] = {}
        edges = zip(*(values.tolist() for values in self.edges), strict=True)
        passes = {flow: (source, target) for source, target, flow in edges if flow != NONE}
        for flow in range(len(flows)):
            source, target = int(flows.source[flow]), int(flows.target[flow])
            what = int(flows.what[flow])
            shared = self._interfaces(source, target)
            num_bytes = float(flows.num_bytes[flow])
            rate = min([float(costs.cluster.bandwidth[source, target]), *shared.values()])
            sizes[flow] = self._ticks(num_bytes / rate)
            latency = self._ticks(float(costs.cluster.latency_s[source, target]))
            for number in range(1 if what == PARAMETERS else self.num):
                start = self.model.new_int_var(0, self.limit, "")
                starts[flow, number] = start
                if what == PARAMETERS:
                    producer = (Kind.STEP, int(costs.replica_stage[flows.source_replica[flow]]), number)
                else:
                    producer = self._pass(passes[flow][0], number)
                producers[flow, number] = producer
                self._after(start, self.start[producer], self.size[producer])
                arrived = sizes[flow] + latency
                if what == PARAMETERS:
                    self.model.add(self.end >= start + arrived)
                else:
                    self._after(self.start[self._pass(passes[flow][1], number)], start, arrived)
                on_link[source, target].append((flow, start, number))
                for side, bandwidth in shared.items():
                    interfaces[side].append((start, self._ticks(num_bytes / bandwidth)))
        for uses in interfaces.values():
            self._shared(uses)
        for entries in on_link.values():
            self._in_order(entries, producers, sizes)
        self._ties(on_link, sizes)

    def _shared(self, uses: list[tuple[Any, int]]) -> None:
        """All transfers over an interface must pass after the first start; the model leaves open how they share it."""
        first = self.model.new_int_var(0, self.limit, "")
        self.model.add_min_equality(first, [start for start, _ in uses])
        self._after(self.end, first, min(sum(ticks for _, ticks in uses), TICKS + 1))

    def _interfaces(self, source: int, target: int) -> dict[tuple[int, bool], float]:
        """The bandwidths of the shared interfaces that a message crosses."""
        cluster = self.costs.cluster
        hosts = int(cluster.host_index[source]), int(cluster.host_index[target])
        if hosts[0] == hosts[1]:
            return {}
        bandwidths = {}
        for host, outgoing in ((hosts[0], True), (hosts[1], False)):
            bandwidth = cluster.hosts[host].interface_bandwidth
            if bandwidth is not None:
                bandwidths[host, outgoing] = bandwidth
        return bandwidths

    def _in_order(
        self, entries: list[tuple[int, Any, int]], producers: dict[tuple[int, int], Job], sizes: dict[int, int]
    ) -> None:
        """Keep the transfers of a link in the order of their producers."""
        for (flow, start, number), (other, later, other_number) in combinations(entries, 2):
            first, second = producers[flow, number], producers[other, other_number]
            if first == second or (flow == other and number < other_number) or second[0] == Kind.STEP != first[0]:
                self._after(later, start, sizes[flow])
                continue
            before = self.model.new_bool_var("")
            self.model.add(self.start[second] >= self.start[first] + self.size[first]).only_enforce_if(before)
            self.model.add(later >= start + sizes[flow]).only_enforce_if(before)
            self.model.add(self.start[first] >= self.start[second] + self.size[second]).only_enforce_if(~before)
            self.model.add(start >= later + sizes[other]).only_enforce_if(~before)

    def _ties(self, on_link: dict[tuple[int, int], list[tuple[int, Any, int]]], sizes: dict[int, int]) -> None:
        """Add reductions of tied parameters, after all other work on their devices and links, before their steps."""
        last: dict[tuple[int, int], tuple[Any, int]] = {}
        for item in sorted(self.costs.reductions, key=lambda item: -item.number):
            start = self.model.new_int_var(0, self.limit, "")
            size, latency = self._ticks(item.ring.occupancy_s), self._ticks(item.ring.latency_s)
            for link in item.ring.links:
                for job in self.on_device[link[0]]:
                    if job[0].is_pass and job[2] == self.num - 1:
                        self._after(start, self.start[job], self.size[job])
                for flow, sent, _ in on_link.get(link, []):
                    if self.costs.flows.what[flow] == PARAMETERS:
                        self._after(sent, start, size)
                    else:
                        self._after(start, sent, sizes[flow])
                if link in last:
                    self._after(start, *last[link])
                last[link] = (start, size)
            for stage in item.stages:
                self._after(self.start[Kind.STEP, stage, 0], start, size + latency)

    def solve(self, seconds: float, seed: int) -> BestOrder:
        solver = self.cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.max_time_in_seconds = seconds
        # Without these, propagation between two jobs may proceed by a few ticks at a time up to the limit.
        solver.parameters.use_dynamic_precedence_in_disjunctive = True
        solver.parameters.use_strong_propagation_in_disjunctive = True
        status = solver.solve(self.model)
        if status in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            orders = []
            for device in range(self.costs.num_devices):
                jobs = self.on_device.get(device, [])
                rank = {job: replica for replica, job in enumerate(jobs)}
                # Jobs of zero ticks share their start with the next job: they go first, in dependency order.
                key = {
                    job: (solver.value(self.start[job]), solver.value(self.start[job]) + self.size[job]) for job in jobs
                }
                orders.append(tuple(sorted(jobs, key=lambda job: (*key[job], *_dependency_order(job), rank[job]))))
            at_least = solver.best_objective_bound * self.tick_s
            return BestOrder(tuple(orders), at_least, status == self.cp.OPTIMAL)
        closed = status == self.cp.INFEASIBLE
        return BestOrder(None, TICKS * self.tick_s if closed else 0.0, closed)


def _dependency_order(job: Job) -> tuple[int, int, int]:
    """A key that rises along all dependencies: forwards up the stages, backwards down, then the rest."""
    kind, stage, _ = job
    phase = {Kind.F: 0, Kind.R: 1, Kind.I: 1}.get(kind, 2)
    return phase, stage if kind == Kind.F else -stage, int(kind)


def _solver() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        hint = "Install it with: pip install 'penstock[exact]'"
        raise InputError("the exact planner requires OR-tools, which is not installed", hint=hint) from error
    return cp_model
