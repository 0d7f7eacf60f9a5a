"""The best order of a priced plan without replication, by constraint programming (OR-tools' CP-SAT, optional).

Jobs are F, R, I, W of every stage and micro-batch, the steps, and every transfer. Micro-batches are alike, so some
best order has the jobs of one kind and stage in the order of their micro-batches: sorting their times, kind by kind,
keeps every need met (if x_m + c <= y_m for all m, then also when both are sorted) and leaves every device and link as
busy as it was. Transfers on a link go in the order in which their makers run; steps come after all else on their
device; receives are posted early enough.

Times are rounded down to whole ticks, of which the time to beat has `TICKS`: so the solver's bound is a true one, and
its order is timed again by the simulator.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from penstock.errors import InputError
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs
from penstock.program import Kind

TICKS = 2**30

Job = tuple[Kind, int, int]
"""Kind, stage, micro-batch."""


@dataclass(frozen=True)
class BestOrder:
    """What the solver found: the order of compute jobs and steps of every device, None if nothing beats the limit."""

    orders: tuple[tuple[Job, ...], ...] | None
    at_least_s: float
    """No order of this plan is faster than this, or than the limit."""
    is_closed: bool
    """Whether the solver finished: the order is a best one, or there is none within the limit."""


def best_order(costs: Costs, limit_s: float, *, seconds: float = 60.0, seed: int = 0) -> BestOrder:
    """The best order of a plan's jobs, if it takes no more than `limit_s`, which must be above zero."""
    model = _Model(costs, limit_s)
    return model.solve(seconds, seed)


class _Model:
    def __init__(self, costs: Costs, limit_s: float) -> None:
        cp_model = _solver()
        self.cp, self.costs = cp_model, costs
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
        # What is over the limit does not fit, however much: no numbers that the solver could not add up.
        return int(min(seconds / self.tick_s, TICKS + 1)) if self.tick_s > 0 else 0

    def _interval(self, start: Any, size: int) -> Any:
        return self.model.new_fixed_size_interval_var(start, size, "")

    def _after(self, later: Any, earlier: Any, ticks: int) -> None:
        self.model.add(later >= earlier + ticks)

    def _jobs(self) -> None:
        costs = self.costs
        for place, stage in enumerate(costs.replica_stage.tolist()):
            ahead, back = int(costs.forward_device[place]), int(costs.backward_device[place])
            kinds = [(Kind.F, ahead, costs.forward_s)]
            if costs.recompute[stage]:
                kinds.append((Kind.R, back, costs.recompute_s))
            kinds += [(Kind.I, back, costs.input_grad_s), (Kind.W, back, costs.weight_grad_s)]
            for kind, device, seconds in kinds:
                ticks = self._ticks(float(seconds[place]))
                for number in range(self.num):
                    self._job((kind, stage, number), device, ticks)
                for number in range(1, self.num):
                    self._follow((kind, stage, number - 1), (kind, stage, number))
            for number in range(self.num):
                chain = [(kind, stage, number) for kind, _, _ in kinds]
                # With another device in between, the transfer is what the backward waits for.
                for earlier, later in pairwise(chain if ahead == back else chain[1:]):
                    self._follow(earlier, later)
            step = (Kind.STEP, stage, 0)
            self._job(step, back, self._ticks(float(costs.step_s[place])))
            self.model.add(self.end >= self.start[step] + self.size[step])
        for kind, pairs in ((Kind.F, costs.flows.local_forward), (Kind.I, costs.flows.local_backward)):
            for earlier, later in pairs.tolist():
                for number in range(self.num):
                    one, two = int(costs.replica_stage[earlier]), int(costs.replica_stage[later])
                    self._follow((kind, one, number), (kind, two, number))

    def _job(self, job: Job, device: int, ticks: int) -> None:
        self.start[job] = self.model.new_int_var(0, self.limit, "")
        self.size[job] = ticks
        self.on_device[device].append(job)

    def _follow(self, earlier: Job, later: Job) -> None:
        self._after(self.start[later], self.start[earlier], self.size[earlier])

    def _steps_last(self, jobs: list[Job]) -> None:
        steps = [job for job in jobs if job[0] == Kind.STEP]
        others = {(kind, stage): self.num - 1 for kind, stage, _ in jobs if kind < Kind.STEP}
        for step in steps:
            for (kind, stage), last in others.items():
                self._follow((kind, stage, last), step)

    def _links(self) -> None:
        costs, flows = self.costs, self.costs.flows
        on_link: dict[tuple[int, int], list[tuple[int, Any, int]]] = defaultdict(list)
        interfaces: dict[tuple[int, bool], list[tuple[Any, int]]] = defaultdict(list)
        makers: dict[tuple[int, int], Job] = {}
        starts: dict[tuple[int, int], Any] = {}
        sizes: dict[int, int] = {}
        for flow in range(len(flows)):
            source, target = int(flows.source[flow]), int(flows.target[flow])
            what = int(flows.what[flow])
            shared = self._interfaces(source, target)
            num_bytes = float(flows.num_bytes[flow])
            rate = min([float(costs.cluster.bandwidth[source, target]), *shared.values()])
            sizes[flow] = self._ticks(num_bytes / rate)
            latency = self._ticks(float(costs.cluster.latency_s[source, target]))
            from_stage = int(costs.replica_stage[flows.source_replica[flow]])
            to_stage = int(costs.replica_stage[flows.target_replica[flow]])
            for number in range(1 if what == PARAMETERS else self.num):
                start = self.model.new_int_var(0, self.limit, "")
                starts[flow, number] = start
                maker = (_MAKER[what], from_stage, number)
                makers[flow, number] = maker
                self._after(start, self.start[maker], self.size[maker])
                arrived = sizes[flow] + latency
                if what == PARAMETERS:
                    self.model.add(self.end >= start + arrived)
                else:
                    again = what == SAVED and bool(costs.recompute[to_stage])
                    user = (Kind.R if again else _USER[what], to_stage, number)
                    self._after(self.start[user], start, arrived)
                on_link[source, target].append((flow, start, number))
                for side, bandwidth in shared.items():
                    interfaces[side].append((start, self._ticks(num_bytes / bandwidth)))
        for uses in interfaces.values():
            self._shared(uses)
        for entries in on_link.values():
            self._in_order(entries, makers, sizes)
        self._ties(on_link, sizes)

    def _shared(self, uses: list[tuple[Any, int]]) -> None:
        """From the first start on, all that crosses an interface must pass; how they share it is left open."""
        first = self.model.new_int_var(0, self.limit, "")
        self.model.add_min_equality(first, [start for start, _ in uses])
        self._after(self.end, first, min(sum(ticks for _, ticks in uses), TICKS + 1))

    def _interfaces(self, source: int, target: int) -> dict[tuple[int, bool], float]:
        """The shared interfaces that a message crosses, and their bandwidths."""
        cluster = self.costs.cluster
        hosts = int(cluster.host_index[source]), int(cluster.host_index[target])
        if hosts[0] == hosts[1]:
            return {}
        found = {}
        for host, outgoing in ((hosts[0], True), (hosts[1], False)):
            bandwidth = cluster.hosts[host].interface_bandwidth
            if bandwidth is not None:
                found[host, outgoing] = bandwidth
        return found

    def _in_order(
        self, entries: list[tuple[int, Any, int]], makers: dict[tuple[int, int], Job], sizes: dict[int, int]
    ) -> None:
        """Transfers of a link in the order of their makers."""
        for (flow, start, number), (other, later, turn) in combinations(entries, 2):
            first, second = makers[flow, number], makers[other, turn]
            if first == second or (flow == other and number < turn) or second[0] == Kind.STEP != first[0]:
                self._after(later, start, sizes[flow])
                continue
            before = self.model.new_bool_var("")
            self.model.add(self.start[second] >= self.start[first] + self.size[first]).only_enforce_if(before)
            self.model.add(later >= start + sizes[flow]).only_enforce_if(before)
            self.model.add(self.start[first] >= self.start[second] + self.size[second]).only_enforce_if(~before)
            self.model.add(start >= later + sizes[other]).only_enforce_if(~before)

    def _ties(self, on_link: dict[tuple[int, int], list[tuple[int, Any, int]]], sizes: dict[int, int]) -> None:
        """Reductions over tied parameters: after all else on their devices and links, before the steps they are for."""
        last: dict[tuple[int, int], tuple[Any, int]] = {}
        for item in sorted(self.costs.reductions, key=lambda item: -item.number):
            start = self.model.new_int_var(0, self.limit, "")
            size, latency = self._ticks(item.ring.occupancy_s), self._ticks(item.ring.latency_s)
            for link in item.ring.links:
                for job in self.on_device[link[0]]:
                    if job[0] < Kind.STEP and job[2] == self.num - 1:
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
        # Without these, two jobs that push each other by a few ticks may do so up to the end of time.
        solver.parameters.use_dynamic_precedence_in_disjunctive = True
        solver.parameters.use_strong_propagation_in_disjunctive = True
        status = solver.solve(self.model)
        if status in (self.cp.OPTIMAL, self.cp.FEASIBLE):
            orders = []
            for device in range(self.costs.num_devices):
                jobs = self.on_device.get(device, [])
                rank = {job: place for place, job in enumerate(jobs)}
                # Jobs without a tick share their start with what follows them: they go first, in the order of needs.
                key = {
                    job: (solver.value(self.start[job]), solver.value(self.start[job]) + self.size[job]) for job in jobs
                }
                orders.append(tuple(sorted(jobs, key=lambda job: (*key[job], *_needs_order(job), rank[job]))))
            at_least = solver.best_objective_bound * self.tick_s
            return BestOrder(tuple(orders), at_least, status == self.cp.OPTIMAL)
        closed = status == self.cp.INFEASIBLE
        return BestOrder(None, TICKS * self.tick_s if closed else 0.0, closed)


_MAKER = {ACTIVATION: Kind.F, GRADIENT: Kind.I, SAVED: Kind.F, PARAMETERS: Kind.STEP}
_USER = {ACTIVATION: Kind.F, GRADIENT: Kind.I, SAVED: Kind.I}


def _needs_order(job: Job) -> tuple[int, int, int]:
    """Rises along all needs: forwards up the stages, backwards down, then the rest."""
    kind, stage, _ = job
    phase = {Kind.F: 0, Kind.R: 1, Kind.I: 1}.get(kind, 2)
    return phase, stage if kind == Kind.F else -stage, int(kind)


def _solver() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        hint = "Install it with: pip install 'penstock[exact]'"
        raise InputError("the exact planner needs OR-tools, which is not installed", hint=hint) from error
    return cp_model
