"""The plain filling of waits with weight gradients: the oracle of the compiled one (weight_filling.py)."""

from collections import deque
from itertools import pairwise

import numpy as np

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT, SAVED
from penstock.program.actions import Kind
from penstock.program.job_table import replicas_of
from penstock.program.types import Program, program_from_arrays
from penstock.schedules.ordering.weight_filling import LEAST_FIT

Job = tuple[int, int, int]
"""Kind, place, micro-batch."""


def fill_weights_plainly(track: Program, costs: Costs, most_kept: int) -> Program:
    """The track, whose backwards are B, with each B parted into I and W and the Ws put where they cost least.

    `most_kept` is the number of (stage, micro-batch) pairs whose tensors a device may keep before it must do Ws.
    """
    filler = _Filler(track, costs, most_kept)
    filler.run()
    done = filler.done
    flat = [job for order in done for job in order]
    kind = np.array([job[0] for job in flat], dtype=np.int8)
    place = np.array([job[1] for job in flat], dtype=np.int64)
    microbatch = np.array([job[2] for job in flat], dtype=np.int64)
    counts = [len(order) for order in done]
    return program_from_arrays(track.plan, track.devices, counts, kind, costs.replica_stage[place], microbatch)


class _Filler:
    def __init__(self, track: Program, costs: Costs, most_kept: int) -> None:
        place = replicas_of(track, costs)
        jobs = list(zip(track.kind.tolist(), place.tolist(), track.microbatch.tolist(), strict=True))
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
        for kind, place, delay in self.needs[job[0]][job[1]]:
            end = self.end.get((kind, place, job[2]))
            if end is None:
                return None
            ready = max(ready, end + delay)
        return ready

    def _fill(self, device: int, job: Job, ready: float) -> None:
        due = self.due[device]
        while due:
            fits = self.clock[device] + LEAST_FIT * self.seconds[Kind.W][due[0][1]] <= ready
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
        kind, place, microbatch = job
        self.clock[device] = max(self.clock[device], ready) + self.seconds[Kind(kind)][place]
        self.end[job] = self.clock[device]
        self.next[device] += 1
        is_home = self.forward_device[place] == self.backward_device[place]
        if kind == Kind.B:
            self.done[device].append((Kind.I, place, microbatch))
            self.due[device].append((Kind.W, place, microbatch))
            self.kept[device] += not is_home
        else:
            self.done[device].append(job)
            self.kept[device] += kind == Kind.F and is_home


def _needs(costs: Costs) -> dict[int, list[list[tuple[int, int, float]]]]:
    """For each kind and place: the (kind, place, delay) that must be done before, of the same micro-batch."""
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
    for place in range(costs.num_replicas):
        first = Kind.R if costs.recompute[costs.replica_stage[place]] else Kind.B
        needs[first][place].append((int(Kind.F), place, saved.get(place, 0.0)))
        if first == Kind.R:
            needs[Kind.B][place].append((int(Kind.R), place, 0.0))
    return needs


def _wakes(costs: Costs) -> dict[int, list[list[int]]]:
    """For each kind and place: the other devices that may go on once it is done."""
    wakes: dict[int, list[list[int]]] = {
        int(kind): [[] for _ in range(costs.num_replicas)] for kind in (Kind.F, Kind.R, Kind.B)
    }
    flows = costs.flows
    for number in range(len(flows)):
        if flows.what[number] in (ACTIVATION, GRADIENT, SAVED):
            kind = Kind.B if flows.what[number] == GRADIENT else Kind.F
            wakes[kind][int(flows.source_replica[number])].append(int(flows.target[number]))
    return wakes
