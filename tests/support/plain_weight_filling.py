"""The plain twin of the compiled weight-gradient filling (`schedules/ordering/weight_filling.py`)."""

from collections import deque
from itertools import pairwise

import numpy as np

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT, SAVED
from penstock.program.actions import Kind
from penstock.program.job_table import replicas_of
from penstock.program.types import Program, program_from_arrays
from penstock.schedules.ordering.weight_filling import MIN_FIT

Job = tuple[int, int, int]
"""Kind, replica, micro-batch."""


def fill_weights_plainly(track: Program, costs: Costs, most_kept: int) -> Program:
    """Split each B of the track into I and W, and put the Ws where the device would wait.

    `most_kept` is the number of (stage, micro-batch) pairs whose tensors a device may keep before it must run Ws.
    """
    filler = _Filler(track, costs, most_kept)
    filler.run()
    done = filler.done
    flat = [job for order in done for job in order]
    kind = np.array([job[0] for job in flat], dtype=np.int8)
    replica = np.array([job[1] for job in flat], dtype=np.int64)
    microbatch = np.array([job[2] for job in flat], dtype=np.int64)
    counts = [len(order) for order in done]
    return program_from_arrays(track.plan, track.devices, counts, kind, costs.replica_stage[replica], microbatch)


class _Filler:
    def __init__(self, track: Program, costs: Costs, most_kept: int) -> None:
        replica = replicas_of(track, costs)
        jobs = list(zip(track.kind.tolist(), replica.tolist(), track.microbatch.tolist(), strict=True))
        bounds = track.offsets.tolist()
        self.track: list[list[Job]] = [jobs[first:last] for first, last in pairwise(bounds)]
        self.most_kept = most_kept
        self.seconds = {
            Kind.F: costs.forward_s.tolist(),
            Kind.R: costs.recompute_s.tolist(),
            Kind.B: costs.input_grad_s.tolist(),
            Kind.W: costs.weight_grad_s.tolist(),
        }
        self.needs = _needs(costs)
        self.forward_device, self.backward_device = costs.forward_device.tolist(), costs.backward_device.tolist()
        self.wakes = _wakes(costs)
        num = len(self.track)
        self.next, self.clock, self.kept = [0] * num, [0.0] * num, [0] * num
        self.due: list[deque[Job]] = [deque() for _ in range(num)]
        self.done: list[list[Job]] = [[] for _ in range(num)]
        self.end: dict[Job, float] = {}

    def run(self) -> None:
        waiting = list(range(len(self.track)))
        while waiting:
            device = waiting.pop()
            while self.next[device] < len(self.track[device]):
                job = self.track[device][self.next[device]]
                ready = self._ready(job)
                if ready is None:
                    break
                self._fill(device, job, ready)
                self._do(device, job, ready)
                waiting += self.wakes[job[0]][job[1]]
        for device in range(len(self.track)):
            while self.due[device]:
                self._weights(device)

    def _ready(self, job: Job) -> float | None:
        ready = 0.0
        for kind, replica, delay in self.needs[job[0]][job[1]]:
            end = self.end.get((kind, replica, job[2]))
            if end is None:
                return None
            ready = max(ready, end + delay)
        return ready

    def _fill(self, device: int, job: Job, ready: float) -> None:
        due = self.due[device]
        while due:
            fits = self.clock[device] + MIN_FIT * self.seconds[Kind.W][due[0][1]] <= ready
            full = job[0] == Kind.F and self.kept[device] >= self.most_kept
            if not (fits or full):
                break
            self._weights(device)

    def _weights(self, device: int) -> None:
        job = self.due[device].popleft()
        self.clock[device] += self.seconds[Kind.W][job[1]]
        self.kept[device] -= 1
        self.done[device].append(job)

    def _do(self, device: int, job: Job, ready: float) -> None:
        kind, replica, microbatch = job
        self.clock[device] = max(self.clock[device], ready) + self.seconds[Kind(kind)][replica]
        self.end[job] = self.clock[device]
        self.next[device] += 1
        is_local = self.forward_device[replica] == self.backward_device[replica]
        if kind == Kind.B:
            self.done[device].append((Kind.I, replica, microbatch))
            self.due[device].append((Kind.W, replica, microbatch))
            self.kept[device] += not is_local
        else:
            self.done[device].append(job)
            self.kept[device] += kind == Kind.F and is_local


def _needs(costs: Costs) -> dict[int, list[list[tuple[int, int, float]]]]:
    """By kind and replica: the (kind, replica, delay) that it depends on, of the same micro-batch."""
    needs: dict[int, list[list[tuple[int, int, float]]]] = {
        int(kind): [[] for _ in range(costs.num_replicas)] for kind in (Kind.F, Kind.R, Kind.B)
    }
    flows = costs.flows
    delay = costs.delay_s
    saved = {}
    for number in range(len(flows)):
        source, target = int(flows.source_replica[number]), int(flows.target_replica[number])
        if flows.what[number] == ACTIVATION:
            needs[Kind.F][target].append((int(Kind.F), source, float(delay[number])))
        elif flows.what[number] == GRADIENT:
            needs[Kind.B][target].append((int(Kind.B), source, float(delay[number])))
        elif flows.what[number] == SAVED:
            saved[target] = float(delay[number])
    for source, target in flows.local_forward.tolist():
        needs[Kind.F][target].append((int(Kind.F), source, 0.0))
    for source, target in flows.local_backward.tolist():
        needs[Kind.B][target].append((int(Kind.B), source, 0.0))
    for replica in range(costs.num_replicas):
        first = Kind.R if costs.recompute[costs.replica_stage[replica]] else Kind.B
        needs[first][replica].append((int(Kind.F), replica, saved.get(replica, 0.0)))
        if first == Kind.R:
            needs[Kind.B][replica].append((int(Kind.R), replica, 0.0))
    return needs


def _wakes(costs: Costs) -> dict[int, list[list[int]]]:
    """By kind and replica: the other devices that may continue when it has run."""
    wakes: dict[int, list[list[int]]] = {
        int(kind): [[] for _ in range(costs.num_replicas)] for kind in (Kind.F, Kind.R, Kind.B)
    }
    flows = costs.flows
    for number in range(len(flows)):
        if flows.what[number] in (ACTIVATION, GRADIENT, SAVED):
            kind = Kind.B if flows.what[number] == GRADIENT else Kind.F
            wakes[kind][int(flows.source_replica[number])].append(int(flows.target[number]))
    return wakes
