"""The plain simulator, written for readability: the reference of the compiled one.

Devices run their actions in order. A compute action occupies its device after everything it depends on has arrived.
Sends, receives and collectives are only issued, unless the plan is for an engine that blocks (`costs.messages`). A
transfer starts when all its participants have issued it and the transfers before it on its links are done. It occupies
its links while its bytes pass and arrives one latency later.
Transfers that cross a shared interface at the same time share it evenly: all get the same bandwidth, except those that
another limit holds below that, whose rest goes to the others; earlier transfers get slightly more. Among transfers that
are ready together, messages come before collectives, then the lower sender, then the earlier send.
"""

import heapq
from itertools import pairwise

import numpy as np

from penstock.arrays import Floats
from penstock.errors import DeadlockError
from penstock.plan.pricing import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Costs
from penstock.program import Action, Kind, Program, collective_kind
from penstock.simulate.reference_transfers import Place, Transfer, share

Orders = list[list[Action]]

_CARRIES = {Kind.SEND_F: ACTIVATION, Kind.SEND_B: GRADIENT, Kind.SEND_S: SAVED, Kind.SEND_P: PARAMETERS}


class _Simulation:
    """The state of a run: what is done, and what each action and transfer still waits for."""

    def __init__(self, orders: Orders, transfers: list[Transfer], costs: Costs) -> None:
        self.orders = orders
        self.seconds = _Seconds(costs)
        self.issues: dict[Place, Transfer] = {}
        self.num_open: dict[Place, int] = {}
        self.ready_s: dict[Place, float] = {}
        for transfer in transfers:
            transfer.num_open += 1 if transfer.is_eager else len(transfer.issued_by)
            for slot in transfer.issued_by:
                self.issues[slot] = transfer
            for slot in transfer.waiting:
                self.num_open[slot] = self.num_open.get(slot, 0) + 1
            for later in transfer.next_on_links:
                later.num_open += 1
        self.clock = [0.0 for _ in orders]
        self.done = [0 for _ in orders]
        self.start: dict[Place, float] = {}
        self.end: dict[Place, float] = {}
        self.queue: list[tuple[float, tuple[int, int, int], Transfer]] = []
        self.passing: list[Transfer] = []
        self.moment_s = 0.0
        self.todo: list[int | Transfer] = list(range(len(orders)))

    def run(self) -> None:
        """Run while anything can start; transfers over shared interfaces start only when nothing else can."""
        while self.todo or self.queue or self.passing:
            if self.todo:
                item = self.todo.pop()
                if isinstance(item, int):
                    self.advance(item)
                else:
                    self.begin(item)
            else:
                self.pass_on()

    def advance(self, device: int) -> None:
        """Run the actions of a device up to the first that waits."""
        while self.done[device] < len(self.orders[device]):
            slot = (device, self.done[device])
            action = self.orders[device][slot[1]]
            if self.num_open.get(slot, 0):
                return
            self.clock[device] = max(self.clock[device], self.ready_s.get(slot, 0.0))
            if action.kind.is_compute:
                self.start[slot] = self.clock[device]
                self.clock[device] = self.end[slot] = self.start[slot] + self.seconds.of(action, device)
            elif not (self.issues[slot].is_eager and action.kind.is_recv):
                self.meet(self.issues[slot], self.clock[device])
            self.done[device] += 1

    def meet(self, transfer: Transfer, at_s: float) -> None:
        """One dependency of a transfer is met."""
        transfer.ready_s = max(transfer.ready_s, at_s)
        transfer.num_open -= 1
        if transfer.num_open == 0:
            if transfer.interfaces and transfer.occupancy_s > 0:
                heapq.heappush(self.queue, (transfer.ready_s, transfer.turn, transfer))
            else:
                self.todo.append(transfer)

    def pass_on(self) -> None:
        """Advance to the next start or end of a transfer over a shared interface."""
        ends = [self.moment_s + transfer.left_s / transfer.speed for transfer in self.passing]
        first_end = min(ends, default=np.inf)
        begins = bool(self.queue) and self.queue[0][0] < first_end
        moment_s = self.queue[0][0] if begins else first_end
        for transfer in self.passing:
            transfer.left_s -= (moment_s - self.moment_s) * transfer.speed
        self.moment_s = moment_s
        if begins:
            _, _, transfer = heapq.heappop(self.queue)
            transfer.start_s, transfer.left_s = moment_s, transfer.occupancy_s
            self.passing.append(transfer)
            share(self.passing)
        else:
            transfer = self.passing.pop(ends.index(first_end))
            share(self.passing)
            self.release(transfer, moment_s)

    def begin(self, transfer: Transfer) -> None:
        """Start a transfer that shares no interface, so its end is known."""
        transfer.start_s = transfer.ready_s
        self.release(transfer, transfer.start_s + transfer.occupancy_s)

    def release(self, transfer: Transfer, released_s: float) -> None:
        """Finish a transfer and release what waits for it."""
        transfer.arrived_s = released_s + transfer.latency_s
        for later in transfer.next_on_links:
            self.meet(later, released_s)
        for slot in transfer.waiting:
            self.ready_s[slot] = max(self.ready_s.get(slot, 0.0), transfer.arrived_s)
            self.num_open[slot] -= 1
            if self.num_open[slot] == 0 and self.done[slot[0]] == slot[1]:
                self.todo.append(slot[0])


def simulate_plainly(program: Program, costs: Costs) -> tuple[Floats, Floats]:
    """Start and end of every action of a lowered program, computed step by step."""
    orders = [list(program.actions(name)) for name in program.devices]
    transfers = _messages(orders, costs) + _collectives(orders, costs)
    _queue_on_links(transfers)
    _block(orders, transfers, costs)
    simulation = _Simulation(orders, transfers, costs)
    simulation.run()
    for device, order in enumerate(orders):
        if simulation.done[device] < len(order):
            raise DeadlockError(f"deadlock: {order[simulation.done[device]]} on {program.devices[device]} never starts")
    start, end = simulation.start, simulation.end
    for slot, transfer in simulation.issues.items():
        start[slot], end[slot] = transfer.start_s, transfer.arrived_s
    slots = [(device, number) for device, order in enumerate(orders) for number in range(len(order))]
    return np.array([start[slot] for slot in slots]), np.array([end[slot] for slot in slots])


def _messages(orders: Orders, costs: Costs) -> list[Transfer]:
    """Pair the sends and receives of every link, in order."""
    cluster = costs.cluster
    received: dict[tuple[int, int], list[Place]] = {}
    jobs: dict[tuple[int, str, int, int], int] = {}
    for device, order in enumerate(orders):
        for number, action in enumerate(order):
            if action.kind.is_recv:
                received.setdefault((cluster.index[action.peer], device), []).append((device, number))
            elif action.kind.is_pass:
                name = "I" if action.kind == Kind.B else action.kind.name
                jobs[device, name, action.stage, action.microbatch] = number
    turns = {link: iter(slots) for link, slots in received.items()}
    sizes = _sizes(costs)
    found = []
    for source, order in enumerate(orders):
        for number, action in enumerate(order):
            if action.kind not in _CARRIES:
                continue
            target = cluster.index[action.peer]
            receive = next(turns[source, target])
            num_bytes = sizes[_CARRIES[action.kind], source, target, action.stage]
            occupancy = num_bytes / float(cluster.bandwidth[source, target])
            interfaces = []
            if cluster.devices[source].host != cluster.devices[target].host:
                for device, outgoing in ((source, True), (target, False)):
                    host = int(cluster.host_index[device])
                    bandwidth = cluster.hosts[host].interface_bandwidth
                    if bandwidth is not None:
                        interfaces.append((host, outgoing, num_bytes / bandwidth))
                        occupancy = max(occupancy, num_bytes / bandwidth)
            consumer = _consumer(orders[target][receive[1]], costs)
            job = (target, consumer, orders[target][receive[1]].stage, action.microbatch)
            found.append(
                Transfer(
                    turn=(0, source, number),
                    issued_by=[(source, number), receive],
                    links=[(source, target)],
                    num_bytes=num_bytes,
                    occupancy_s=occupancy,
                    latency_s=float(cluster.latency_s[source, target]),
                    interfaces=interfaces,
                    waiting=[(target, jobs[job])] if consumer else [],
                )
            )
    return found


def _consumer(receive: Action, costs: Costs) -> str:
    """The kind of action that consumes a received payload."""
    if receive.kind == Kind.RECV_P:
        return ""
    if receive.kind == Kind.RECV_F:
        return "F"
    recomputes = costs.plan.stages[receive.stage].recompute
    return "R" if receive.kind == Kind.RECV_S and recomputes else "I"


def _collectives(orders: Orders, costs: Costs) -> list[Transfer]:
    found = []
    for number, item in enumerate(costs.collectives):
        kind = collective_kind(is_tie=item.is_tie, is_gather=item.is_gather)
        waiting = [
            (device, slot)
            for device, order in enumerate(orders)
            for slot, action in enumerate(order)
            if action.kind == Kind.STEP and action.stage in item.stages
        ]
        found.append(
            Transfer(
                turn=(1, number, 0),
                issued_by=[(device, orders[device].index(Action(kind, item.number))) for device in item.ring.devices],
                links=item.ring.links,
                num_bytes=item.ring.sent_bytes,
                occupancy_s=item.ring.occupancy_s,
                latency_s=item.ring.latency_s,
                interfaces=[(use.host, use.outgoing, use.seconds) for use in item.ring.interfaces],
                waiting=waiting,
            )
        )
    return found


def _block(orders: Orders, transfers: list[Transfer], costs: Costs) -> None:
    """Let devices wait for their own messages, as the plan's engine does."""
    messages = costs.messages
    if messages.is_overlapped:
        return
    for transfer in transfers:
        if len(transfer.links) != 1 or orders[transfer.issued_by[0][0]][transfer.issued_by[0][1]].kind.is_reduction:
            continue
        transfer.is_eager = 0 < messages.eager_bytes >= transfer.num_bytes
        send, receive = transfer.issued_by
        waits_for_send = messages.send == "rendezvous" and not transfer.is_eager
        for device, number in [receive, send] if waits_for_send else [receive]:
            following = number + 1
            while (
                messages.together and following < len(orders[device]) and not orders[device][following].kind.is_compute
            ):
                following += 1
            if following < len(orders[device]) and (device, following) not in transfer.waiting:
                transfer.waiting.append((device, following))


def _queue_on_links(transfers: list[Transfer]) -> None:
    """On every link, transfers follow each other in the order in which the sending device issues them."""
    queues: dict[tuple[int, int], list[tuple[int, Transfer]]] = {}
    for transfer in transfers:
        for link in transfer.links:
            number = next(number for device, number in transfer.issued_by if device == link[0])
            queues.setdefault(link, []).append((number, transfer))
    for queue in queues.values():
        queue.sort(key=lambda entry: entry[0])
        for (_, earlier), (_, later) in pairwise(queue):
            earlier.next_on_links.append(later)


def _sizes(costs: Costs) -> dict[tuple[int, int, int, int], float]:
    """Bytes of a message by its content, its devices and the stage that it leaves."""
    flows = costs.flows
    return {
        (
            int(flows.what[flow]),
            int(flows.source[flow]),
            int(flows.target[flow]),
            int(costs.replica_stage[flows.source_replica[flow]]),
        ): float(flows.num_bytes[flow])
        for flow in range(len(flows))
    }


class _Seconds:
    """Seconds of compute actions by kind, stage and device."""

    def __init__(self, costs: Costs) -> None:
        self._seconds: dict[tuple[Kind, int, int], float] = {}
        for kind, devices, seconds in (
            (Kind.F, costs.forward_device, costs.forward_s),
            (Kind.R, costs.backward_device, costs.recompute_s),
            (Kind.I, costs.backward_device, costs.input_grad_s),
            (Kind.W, costs.backward_device, costs.weight_grad_s),
            (Kind.B, costs.backward_device, costs.backward_s),
            (Kind.STEP, costs.backward_device, costs.step_s),
        ):
            for stage, device, value in zip(costs.replica_stage, devices, seconds, strict=True):
                self._seconds[kind, int(stage), int(device)] = float(value)

    def of(self, action: Action, device: int) -> float:
        return self._seconds[action.kind, action.stage, device]
