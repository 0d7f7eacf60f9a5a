"""Memory along a program: two stages by hand, and everything against a walk that keeps a list of what is there."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrays import Ints
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT
from penstock.plan.types import on
from penstock.program.actions import Action, Kind
from penstock.program.proof.memory import memory_use
from penstock.program.proof.proof import prove
from penstock.program.types import Program
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, reach_features, two_stages
from tests.support.thoroughness import examples


def told(case: Case) -> dict[str, list[tuple[str, float, float]]]:
    """For each device its actions with bytes during and after, less what is held all the time."""
    costs = case.costs
    program = case.lowered(costs)
    use = memory_use(program, costs)
    rows: dict[str, list[tuple[str, float, float]]] = {name: [] for name in program.devices}
    for place in range(program.num_actions):
        static = float(costs.static_bytes[program.device_of[place]])
        entry = (str(program.action(place)), float(use.during[place]) - static, float(use.after[place]) - static)
        rows[program.devices[int(program.device_of[place])]].append(entry)
    return rows


def test_two_stages_by_hand() -> None:
    # Saved 8, cut 4; static: 16 bytes of parameters as weights, gradients, and twice for the optimizer.
    case = two_stages(num_microbatches=2)
    assert case.costs.static_bytes.tolist() == [64, 64]
    assert told(case) == {
        "d0": [
            ("0F0", 8, 8),
            ("0SEND_F0@d1", 12, 12),
            ("0F1", 20, 16),  # the first message has left when the next action is done
            ("0SEND_F1@d1", 20, 20),
            ("0RECV_B0@d1", 24, 24),
            ("0RECV_B1@d1", 28, 28),
            ("0B0", 28, 12),  # its saved tensors, its gradient and the second message go
            ("0B1", 12, 0),
            ("0STEP", 0, 0),
        ],
        "d1": [
            ("1RECV_F0@d0", 4, 4),
            ("1RECV_F1@d0", 8, 8),
            ("1F0", 12, 12),  # what was received becomes part of what is saved
            ("1B0", 12, 4),
            ("1SEND_B0@d0", 8, 8),
            ("1F1", 12, 8),
            ("1B1", 8, 0),
            ("1SEND_B1@d0", 4, 4),
            ("1STEP", 4, 0),
        ],
    }
    costs = case.costs
    assert prove(case.lowered(costs), costs).peak_bytes.tolist() == [64 + 28, 64 + 12]


def test_a_split_backward_by_hand() -> None:
    # Of 8 bytes, 6 stay until W.
    assert told(two_stages(num_microbatches=1, schedule_name="zb_h1"))["d0"] == [
        ("0F0", 8, 8),
        ("0SEND_F0@d1", 12, 12),
        ("0RECV_B0@d1", 16, 16),
        ("0I0", 16, 6),
        ("0W0", 6, 0),
        ("0STEP", 0, 0),
    ]


def test_recomputation_by_hand() -> None:
    # Stage 0 keeps its input of 3 bytes, stage 1 its input of 4; R brings the rest of the 8.
    rows = told(two_stages(num_microbatches=1, recompute=True))
    assert rows == {
        "d0": [
            ("0F0", 3, 3),
            ("0SEND_F0@d1", 7, 7),
            ("0R0", 12, 8),
            ("0RECV_B0@d1", 12, 12),
            ("0B0", 12, 0),
            ("0STEP", 0, 0),
        ],
        "d1": [
            ("1RECV_F0@d0", 4, 4),
            ("1F0", 4, 4),
            ("1R0", 8, 8),
            ("1B0", 8, 0),
            ("1SEND_B0@d0", 4, 4),
            ("1STEP", 4, 0),
        ],
    }


def test_a_backward_elsewhere_by_hand() -> None:
    case = two_stages(num_microbatches=1, groups=((on("d0"), on("d0")), (on("d1"), on("d0"))))
    # d0 trains both stages: 4 x 32; d1 holds a copy of stage 1's weights only.
    assert case.costs.static_bytes.tolist() == [128, 16]
    assert told(case) == {
        "d0": [
            ("0F0", 8, 8),
            ("0SEND_F0@d1", 12, 12),
            ("1RECV_S0@d1", 20, 20),
            ("1B0", 20, 8),
            ("0B0", 8, 0),
            ("1STEP", 0, 0),
            ("1SEND_P@d1", 0, 0),
            ("0STEP", 0, 0),
        ],
        "d1": [
            ("1RECV_F0@d0", 4, 4),
            ("1F0", 8, 8),
            ("1SEND_S0@d0", 8, 8),  # no action of d1 follows: it stays to the end
            ("1RECV_P@d0", 8, 8),
        ],
    }


class Walk:
    """What a device holds, thing by thing."""

    def __init__(self, costs: Costs, device: int, actions: list[Action]) -> None:
        self.costs, self.device = costs, device
        self.shipped = [(item.stage, item.peer, item.microbatch) for item in actions if item.kind == Kind.RECV_S]
        self.things: dict[tuple[object, ...], float] = {}
        self.leaving: list[tuple[object, ...]] = []

    @property
    def total(self) -> float:
        return float(self.costs.static_bytes[self.device]) + sum(self.things.values())

    def place(self, stage: int, devices: Ints) -> int:
        span = self.costs.replicas(stage)
        (found,) = np.flatnonzero(devices[span] == self.device)
        return int(span.start + found)

    def flow_bytes(self, what: int, place: int, peer: int, outgoing: bool) -> float:
        flows = self.costs.flows
        ends, peers = (flows.source_replica, flows.target) if outgoing else (flows.target_replica, flows.source)
        (found,) = np.flatnonzero((flows.what == what) & (ends == place) & (peers == peer))
        return float(flows.num_bytes[found])

    def hold(self, kind: Kind, stage: int, microbatch: int, peer: int) -> None:
        """A payload to be sent is there."""
        if kind in (Kind.SEND_F, Kind.SEND_B):
            what, devices = (
                (ACTIVATION, self.costs.forward_device)
                if kind == Kind.SEND_F
                else (GRADIENT, self.costs.backward_device)
            )
            size = self.flow_bytes(what, self.place(stage, devices), peer, outgoing=True)
            self.things["sent", kind, stage, microbatch, peer] = size

    def do(self, kind: Kind, stage: int, microbatch: int, peer: int) -> tuple[float, float]:
        costs, things = self.costs, self.things
        job = (stage, microbatch)
        hosts = costs.cluster.host_index
        is_copied = costs.copies_sent[self.device] and peer >= 0 and hosts[self.device] == hosts[peer]
        if kind in (Kind.F, Kind.SEND_F, Kind.RECV_F, Kind.SEND_S):
            place = self.place(stage, costs.forward_device)
        elif kind in (Kind.RECV_P, Kind.REDUCE_TIE):
            return self.total, self.total
        else:
            place = self.place(stage, costs.backward_device)
        share = float(costs.share[place])
        kept = float(costs.input_bytes[stage] if costs.recompute[stage] else costs.saved_bytes[stage]) * share
        saved, pending = float(costs.saved_bytes[stage]) * share, float(costs.pending_bytes[stage]) * share
        at_home = costs.forward_device[place] == costs.backward_device[place]
        if kind == Kind.F:
            self.forget("activation", *job)
            things["saved" if at_home else "moving", *job] = kept
        elif kind == Kind.R:
            things["saved", *job] = saved
        elif kind == Kind.RECV_S:
            things["saved", *job] = kept
            sender = costs.cluster.devices[peer].name
            later = [item[2] for item in self.shipped if item[:2] == (stage, sender)]
            later = later[later.index(microbatch) + 1 :][:1]
            if is_copied and later:
                things["saved", stage, later[0]] = kept
        elif kind == Kind.RECV_F:
            things["activation", *job, peer] = self.flow_bytes(ACTIVATION, place, peer, outgoing=False)
        elif kind == Kind.RECV_B:
            things["gradient", *job, peer] = self.flow_bytes(GRADIENT, place, peer, outgoing=False)
        elif kind in (Kind.SEND_F, Kind.SEND_B):
            self.hold(kind, stage, microbatch, peer)
            self.leaving.append(("sent", kind, *job, peer))
        elif kind == Kind.SEND_S:
            self.leaving.append(("moving", *job))
        during = self.total
        if kind == Kind.STEP:
            during += float(costs.more_at_step_bytes[self.device])
        if kind == Kind.I:
            things["saved", *job] = pending
        if kind in (Kind.I, Kind.B):
            self.forget("gradient", *job)
        if kind in (Kind.W, Kind.B):
            del things["saved", *job]
        if kind <= Kind.STEP:
            for thing in self.leaving:
                del things[thing]
            self.leaving.clear()
        elif kind in (Kind.SEND_F, Kind.SEND_B, Kind.SEND_S) and is_copied:
            del things[self.leaving.pop()]
        return during, self.total

    def forget(self, *start: object) -> None:
        for thing in [thing for thing in self.things if thing[: len(start)] == start]:
            del self.things[thing]


def sends_that_wait(actions: list[Action]) -> dict[Action, list[Action]]:
    """For each compute action the sends of its payload that do not follow before the next one."""
    made_by = {Kind.SEND_F: (Kind.F,), Kind.SEND_B: (Kind.I, Kind.B)}
    waiting: dict[Action, list[Action]] = {}
    computed: list[Action] = []
    for action in actions:
        if action.kind <= Kind.STEP:
            computed.append(action)
        for maker in computed if action.kind in made_by else ():
            is_maker = (maker.stage, maker.microbatch) == (action.stage, action.microbatch)
            if is_maker and maker.kind in made_by[action.kind] and maker is not computed[-1]:
                waiting.setdefault(maker, []).append(action)
    return waiting


def walk(program: Program, costs: Costs) -> tuple[list[float], list[float], list[float]]:
    during, after = [], []
    peaks = costs.static_bytes.tolist()
    for device, name in enumerate(program.devices):
        actions = list(program.actions(name))
        state = Walk(costs, device, actions)
        waiting = sends_that_wait(actions)
        for action in actions:
            peer = costs.cluster.index.get(action.peer, -1)
            found = state.do(action.kind, action.stage, action.microbatch, peer)
            during.append(found[0])
            for send in waiting.get(action, ()):
                state.hold(send.kind, send.stage, send.microbatch, costs.cluster.index[send.peer])
            after.append(state.total)
            peaks[device] = max(peaks[device], found[0], state.total)
        # Whatever is left has been sent, and nothing was done after it.
        assert set(state.things) == set(state.leaving)
    return during, after, peaks


@reaches(several_stages=0.05, replicated=0.05, remote=0.02, recompute=0.05, split=0.02, copies=0.02, waits=0.02)
@examples(200)
@given(cases(), st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_equal_to_a_walk(case: Case, work: int, more_at_step: int, copies: bool) -> None:
    all_devices = np.ones(case.costs.num_devices)
    costs = replace(
        case.costs,
        work_bytes=work * all_devices,
        more_at_step_bytes=more_at_step * all_devices,
        copies_sent=np.full(case.costs.num_devices, copies),
    )
    program = case.lowered(costs)
    use = memory_use(program, costs)
    during, after, peaks = walk(program, costs)
    assert np.allclose(use.during, during, rtol=1e-12, atol=1e-6)
    assert np.allclose(use.after, after, rtol=1e-12, atol=1e-6)
    assert np.allclose(use.peak(program, costs), peaks, rtol=1e-12, atol=1e-6)
    assert np.array_equal(prove(program, costs).peak_bytes, use.peak(program, costs))
    reach_features(case)
    reach("copies", copies and len(case.costs.flows))
    reach("waits", any(sends_that_wait(list(program.actions(name))) for name in program.devices))
