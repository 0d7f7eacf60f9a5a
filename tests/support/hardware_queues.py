"""Lowered programs on devices with streams and hardware queues, where hosts wait for their whole device anywhere.

A host queues the actions of its device in order, each on a stream: one for compute, one for each direction of each
link, one for reductions. Streams share hardware queues. A queue runs its operations one after the other, and the one
at its head occupies it until it is done:

- a compute action, when the compute actions before it are done and the messages that it needs have arrived;
- a send or a receive, when the compute actions queued before it are done and the other end is at a head, too;
- a reduction, when it is at a head on all its devices.

Before and after some compute actions, the host waits until everything that it has queued is done.
"""

from collections import deque
from collections.abc import Callable

import numpy as np

from penstock.plan.pricing.costs import Costs
from penstock.program.actions import NONE
from penstock.program.dependencies import Dependencies, find_dependencies
from penstock.program.job_table import find_jobs
from penstock.program.types import Program

_Waits = Callable[[int], bool]


def everywhere(_action: int) -> bool:
    """A host that waits for its device around every compute action."""
    return True


def nowhere(_action: int) -> bool:
    """A host that never waits for its device."""
    return False


def runs_to_the_end(program: Program, costs: Costs, num_queues: int, waits: _Waits) -> bool:
    """Whether all actions run, with so many hardware queues per device and hosts that wait around these actions."""
    dependencies = find_dependencies(program, costs, find_jobs(program, costs))
    devices = [_Device(program, dependencies, number, num_queues, waits) for number in range(len(program.devices))]
    done: set[int] = set()
    progress = True
    while progress:
        progress = sum(device.queue_actions(done) for device in devices) > 0
        heads = {action for device in devices for action in device.heads(done)}
        for action in sorted(heads):
            if action not in done and _runs(action, heads, program, dependencies, done):
                done |= _ends(action, dependencies)
                progress = True
    return len(done) == program.num_actions


def _runs(action: int, heads: set[int], program: Program, dependencies: Dependencies, done: set[int]) -> bool:
    if dependencies.transfer_of[action] != NONE:
        return _ends(action, dependencies) <= heads
    owner = np.repeat(np.arange(dependencies.num_transfers), np.diff(dependencies.consumers.begin))
    needed = owner[dependencies.consumers.values == action].tolist()
    return all(int(dependencies.send[item]) in done for item in needed)


def _ends(action: int, dependencies: Dependencies) -> set[int]:
    """The actions of a transfer on all its devices; a compute action alone."""
    transfer = dependencies.transfer_of[action]
    return {action} if transfer == NONE else set(np.flatnonzero(dependencies.transfer_of == transfer).tolist())


class _Device:
    def __init__(
        self, program: Program, dependencies: Dependencies, number: int, num_queues: int, waits: _Waits
    ) -> None:
        first, stop = (int(value) for value in program.offsets[number : number + 2])
        self.actions = deque(range(first, stop))
        self.is_compute = {action: dependencies.transfer_of[action] == NONE for action in self.actions}
        self.waits = waits
        self.queues: list[deque[int]] = [deque() for _ in range(num_queues)]
        self.queued: list[int] = []
        self.computes_before: dict[int, list[int]] = {}
        streams: dict[object, int] = {}
        self.stream = {}
        for action in self.actions:
            kind = program.action(action).kind
            name = "compute" if self.is_compute[action] else (kind.is_send, kind.is_recv, int(program.peer[action]))
            self.stream[action] = streams.setdefault(name, len(streams))

    def queue_actions(self, done: set[int]) -> int:
        """The host queues actions up to one before which it waits; return how many."""
        before = len(self.queued)
        while self.actions:
            action = self.actions[0]
            around = [action] if self.is_compute[action] else []
            around += self.queued[-1:] if self.queued and self.is_compute[self.queued[-1]] else []
            if any(self.waits(item) for item in around) and not set(self.queued) <= done:
                break
            self.computes_before[action] = [item for item in self.queued if self.is_compute[item]]
            self.queued.append(self.actions.popleft())
            self.queues[self.stream[action] % len(self.queues)].append(action)
        return len(self.queued) - before

    def heads(self, done: set[int]) -> list[int]:
        """The operations at the heads of the queues that do not wait for compute of their own device."""
        heads = []
        for queue in self.queues:
            while queue and queue[0] in done:
                queue.popleft()
            if queue and set(self.computes_before[queue[0]]) <= done:
                heads.append(queue[0])
        return heads
