"""A naive interpreter of lowered programs, independent of the proof.

Devices take turns. Each runs its next action if it can; sends and receives of a link are matched one by one. After a
send, a receive or a reduction, a device goes on when the transfer has taken place: it may wait for all that it has
posted at any point. In the end, every action must have run once.
"""

from collections import Counter, deque

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.row_overlap import overlaps
from penstock.program.actions import COLLECTIVE_KINDS, ONCE_KINDS, RECV_KINDS, SEND_KINDS, Action, Kind, collective_kind
from penstock.program.types import Program


class BrokenError(Exception):
    """The program does not work."""


class Interpreter:
    def __init__(self, program: Program, costs: Costs) -> None:
        self.plan = costs.plan
        self.names = program.devices
        self.orders = {name: list(program.actions(name)) for name in self.names}
        self.done: Counter[tuple[str, Action]] = Counter()
        self.left: set[tuple[str, Action]] = set()
        self.arrived: set[tuple[str, Action]] = set()
        self.counter = dict.fromkeys(self.names, 0)
        self.sent: dict[tuple[str, str], deque[Action]] = {}
        self.posted: dict[tuple[str, str], deque[Action]] = {}
        self.reduced: Counter[tuple[Kind, int]] = Counter()
        self.link_queue: dict[tuple[str, str], deque[object]] = {}
        self.rings = {
            (collective_kind(is_tie=item.is_tie, is_gather=item.is_gather), item.number): (
                [self.names[device] for device in item.ring.devices],
                [(self.names[a], self.names[b]) for a, b in item.ring.links],
                item.stages,
            )
            for item in costs.collectives
        }
        self.trained_bytes = costs.trained_bytes

    def run(self) -> None:
        progress = True
        while progress:
            progress = self._deliver()
            for name in self.names:
                while self.counter[name] < len(self.orders[name]):
                    action = self.orders[name][self.counter[name]]
                    if self._is_waiting(name) or not self._can(name, action):
                        break
                    self._do(name, action)
                    self.counter[name] += 1
                    progress = True
        if any(self.counter[name] < len(self.orders[name]) for name in self.names):
            raise BrokenError("stuck")
        if any(self.sent.values()) or any(self.posted.values()):
            raise BrokenError("messages left over")
        self._check_all_done()

    # -- groups ---------------------------------------------------------------------------------------------------

    def replica(self, name: str, stage: int, side: str) -> int:
        if not 0 <= stage < len(self.plan.stages):
            raise BrokenError(f"no stage {stage}")
        for index, item in enumerate(getattr(self.plan.stages[stage], side)):
            if item.device == name:
                return index
        raise BrokenError(f"{name} is not in the {side} group of {stage}")

    def sources(self, name: str, stage: int, side: str, neighbour: int) -> list[str]:
        """The devices of a neighbouring stage that share rows with this one."""
        stage_here, neighbour_stage = self.plan.stages[stage], self.plan.stages[neighbour]
        index = self.replica(name, stage, side)
        pairs = overlaps([item.share for item in neighbour_stage.forward], [item.share for item in stage_here.forward])
        return [getattr(neighbour_stage, side)[pair.left].device for pair in pairs if pair.right == index]

    # -- actions --------------------------------------------------------------------------------------------------

    def _needs(self, name: str, action: Action) -> list[tuple[bool, Action]]:
        """What a compute action depends on: pairs of whether it is a receive, and the action."""
        kind, stage, microbatch, _ = action
        needs: list[tuple[bool, Action]] = []
        if kind == Kind.F:
            self.replica(name, stage, "forward")
            if stage > 0:
                for source in self.sources(name, stage, "forward", stage - 1):
                    if source == name:
                        needs.append((False, Action(Kind.F, stage - 1, microbatch)))
                    else:
                        needs.append((True, Action(Kind.RECV_F, stage, microbatch, source)))
            return needs
        index = self.replica(name, stage, "backward")
        stage_here = self.plan.stages[stage]
        if kind == Kind.W:
            return [(False, Action(Kind.I, stage, microbatch))]
        if kind == Kind.R and not stage_here.recompute:
            raise BrokenError("nothing to recompute")
        if kind == Kind.R or not stage_here.recompute:
            home = stage_here.forward[index].device
            if home == name:
                needs.append((False, Action(Kind.F, stage, microbatch)))
            else:
                needs.append((True, Action(Kind.RECV_S, stage, microbatch, home)))
        else:
            needs.append((False, Action(Kind.R, stage, microbatch)))
        if kind in (Kind.I, Kind.B) and stage + 1 < len(self.plan.stages):
            for source in self.sources(name, stage, "backward", stage + 1):
                if source == name:
                    needs.append((False, Action(Kind.I, stage + 1, microbatch)))
                else:
                    needs.append((True, Action(Kind.RECV_B, stage, microbatch, source)))
        return needs

    def _is_waiting(self, name: str) -> bool:
        """Whether the last action of a device is a transfer that has not taken place."""
        if not self.counter[name]:
            return False
        action = self.orders[name][self.counter[name] - 1]
        if action.kind in SEND_KINDS:
            return (name, action) not in self.left
        if action.kind in RECV_KINDS:
            return (name, action) not in self.arrived
        key = action.kind, action.stage
        return key in self.rings and self.reduced[key] <= len(self.rings[key][0])

    def _has_done(self, name: str, action: Action) -> bool:
        if action.kind == Kind.I:
            return bool(self.done[name, action] or self.done[name, action._replace(kind=Kind.B)])
        return bool(self.done[name, action])

    def _can(self, name: str, action: Action) -> bool:
        """Whether an action can run now. Raises if it never can, because its own device has skipped a dependency."""
        kind = action.kind
        if kind <= Kind.B:
            ready = True
            for remote, need in self._needs(name, action):
                if remote:
                    before = self.orders[name][: self.counter[name]]
                    if need not in before:
                        raise BrokenError(f"{action} on {name} before {need}")
                    ready &= (name, need) in self.arrived
                elif not self._has_done(name, need):
                    raise BrokenError(f"{action} on {name} before {need}")
            return ready
        if kind == Kind.STEP:
            self.replica(name, action.stage, "backward")
            self._check_gradients(name, action.stage)
            waiting = False
            for (reduce_kind, number), (replicas, _, stages) in self.rings.items():
                if action.stage in stages:
                    if not self.done[name, Action(reduce_kind, number)]:
                        raise BrokenError(f"{action} on {name} before its reduction")
                    waiting |= self.reduced[reduce_kind, number] < len(replicas) + 1
            return not waiting
        return True

    def _check_gradients(self, name: str, stage: int) -> None:
        for microbatch in range(self.plan.num_microbatches):
            whole = self.done[name, Action(Kind.B, stage, microbatch)]
            if whole + self.done[name, Action(Kind.W, stage, microbatch)] != 1:
                raise BrokenError(f"gradients of {stage} are not complete on {name}")

    def _do(self, name: str, action: Action) -> None:
        self.done[name, action] += 1
        if self.done[name, action] > 1:
            raise BrokenError(f"{action} twice on {name}")
        kind = action.kind
        once = kind in ONCE_KINDS
        if not once and not 0 <= action.microbatch < self.plan.num_microbatches:
            raise BrokenError("the micro-batch does not exist")
        if kind in SEND_KINDS:
            self._check_sendable(name, action)
            self.sent.setdefault((name, action.peer), deque()).append(action)
            self.link_queue.setdefault((name, action.peer), deque()).append("message")
        elif kind in RECV_KINDS:
            if kind == Kind.RECV_P:
                self._check_old_parameters_unused(name, action)
            self.posted.setdefault((action.peer, name), deque()).append(action)
        elif kind in COLLECTIVE_KINDS:
            key = (kind, action.stage)
            if key not in self.rings or name not in self.rings[key][0]:
                raise BrokenError("no such reduction")
            if kind == Kind.GATHER_P and not self.done[name, Action(Kind.STEP, action.stage)]:
                raise BrokenError(f"{action} on {name} before the step")
            for stage in self.rings[key][2]:
                if any(item.device == name for item in self.plan.stages[stage].backward):
                    self._check_gradients(name, stage)
            self.reduced[key] += 1
            for link in self.rings[key][1]:
                if link[0] == name:
                    self.link_queue.setdefault(link, deque()).append(key)

    def _check_sendable(self, name: str, action: Action) -> None:
        kind, stage, microbatch, _ = action
        producer = {
            Kind.SEND_F: Action(Kind.F, stage, microbatch),
            Kind.SEND_S: Action(Kind.F, stage, microbatch),
            Kind.SEND_B: Action(Kind.I, stage, microbatch),
            Kind.SEND_P: Action(Kind.STEP, stage),
        }[kind]
        if not self._has_done(name, producer):
            raise BrokenError(f"{action} on {name} sends a tensor before it is computed")

    def _check_old_parameters_unused(self, name: str, action: Action) -> None:
        for microbatch in range(self.plan.num_microbatches):
            if not self.done[name, Action(Kind.F, action.stage, microbatch)]:
                raise BrokenError("updated weights arrive before the last forward")

    def _deliver(self) -> bool:
        """Deliver messages and reductions, on every link in order."""
        progress = False
        for link, queue in self.link_queue.items():
            while queue and queue[0] == "message" and self.sent.get(link) and self.posted.get(link):
                send, receive = self.sent[link].popleft(), self.posted[link].popleft()
                self._match(link, send, receive)
                queue.popleft()
                self.left.add((link[0], send))
                self.arrived.add((link[1], receive))
                progress = True
        for key, (replicas, links, _) in self.rings.items():
            if self.reduced[key] == len(replicas) and all(
                self.link_queue.get(link) and self.link_queue[link][0] == key for link in links
            ):
                for link in links:
                    self.link_queue[link].popleft()
                self.reduced[key] += 1
                progress = True
        return progress

    def _match(self, link: tuple[str, str], send: Action, receive: Action) -> None:
        fits = {
            Kind.SEND_F: (Kind.RECV_F, send.stage + 1),
            Kind.SEND_B: (Kind.RECV_B, send.stage - 1),
            Kind.SEND_S: (Kind.RECV_S, send.stage),
            Kind.SEND_P: (Kind.RECV_P, send.stage),
        }[send.kind]
        if (receive.kind, receive.stage) != fits or send.microbatch != receive.microbatch:
            raise BrokenError(f"{receive} does not match {send} on {link}")

    # -- the end --------------------------------------------------------------------------------------------------

    def _check_all_done(self) -> None:
        expected: Counter[tuple[str, Action]] = Counter()
        plan = self.plan
        for number, stage in enumerate(plan.stages):
            for ahead, behind in zip(stage.forward, stage.backward, strict=True):
                for microbatch in range(plan.num_microbatches):
                    expected[ahead.device, Action(Kind.F, number, microbatch)] += 1
                    whole = self.done[behind.device, Action(Kind.B, number, microbatch)]
                    for kind in (Kind.B,) if whole else (Kind.I, Kind.W):
                        expected[behind.device, Action(kind, number, microbatch)] += 1
                    if stage.recompute:
                        expected[behind.device, Action(Kind.R, number, microbatch)] += 1
                expected[behind.device, Action(Kind.STEP, number)] += 1
        for (kind, number), (replicas, _, _) in self.rings.items():
            for name in replicas:
                expected[name, Action(kind, number)] += 1
        for number, stage in enumerate(plan.stages):
            trainers = {item.device for item in stage.backward}
            for ahead, behind in zip(stage.forward, stage.backward, strict=True):
                if ahead.device == behind.device:
                    continue
                for microbatch in range(plan.num_microbatches):
                    expected[ahead.device, Action(Kind.SEND_S, number, microbatch, behind.device)] += 1
                    expected[behind.device, Action(Kind.RECV_S, number, microbatch, ahead.device)] += 1
                if self.trained_bytes[number] > 0 and ahead.device not in trainers:
                    expected[behind.device, Action(Kind.SEND_P, number, peer=ahead.device)] += 1
                    expected[ahead.device, Action(Kind.RECV_P, number, peer=behind.device)] += 1
            if number:
                for side, send, receive in (
                    ("forward", Kind.SEND_F, Kind.RECV_F),
                    ("backward", Kind.RECV_B, Kind.SEND_B),
                ):
                    for late in {item.device for item in getattr(stage, side)}:
                        for early in self.sources(late, number, side, number - 1):
                            if early == late:
                                continue
                            for microbatch in range(plan.num_microbatches):
                                expected[early, Action(send, number - 1, microbatch, late)] += 1
                                expected[late, Action(receive, number, microbatch, early)] += 1
        if expected != self.done:
            raise BrokenError("actions are missing or superfluous")


def works(program: Program, costs: Costs) -> bool:
    """Whether a lowered program works."""
    try:
        Interpreter(program, costs).run()
    except BrokenError:
        return False
    return True
