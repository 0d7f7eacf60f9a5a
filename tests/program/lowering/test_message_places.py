"""Programs with their messages placed, by hand, and what holds for all of them."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.types import Wire
from penstock.plan.pricing.costs import Collective
from penstock.plan.types import Origin, on
from penstock.profile.types import Tie
from penstock.program.actions import NONE, RECV_KINDS, SEND_KINDS, Action, Kind, collective_kind
from penstock.program.lowering.message_places import place_messages
from penstock.program.types import Program
from penstock.schedules.registry import schedule
from tests.support.reach import reach, reaches
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, two_stages
from tests.support.thoroughness import examples


def texts(case: Case) -> dict[str, str]:
    """Each device's lowered actions in one line."""
    costs = case.costs
    program = place_messages(schedule(costs), costs)
    return {name: " ".join(map(str, program.actions(name))) for name in program.devices}


def test_two_stages_two_micro_batches() -> None:
    assert texts(two_stages(num_microbatches=2)) == {
        "d0": "0RECV_B0@d1 0RECV_B1@d1 0F0 0SEND_F0@d1 0F1 0SEND_F1@d1 0B0 0B1 0STEP",
        "d1": "1RECV_F0@d0 1RECV_F1@d0 1F0 1B0 1SEND_B0@d0 1F1 1B1 1SEND_B1@d0 1STEP",
    }


def test_receives_are_posted_as_far_ahead_as_the_latency_asks() -> None:
    # A message passes in 4 / 2 = 2 seconds, its consumer takes 2 (d1) or 1 (d0): one every 2 seconds. The latency of
    # 1 second needs one more than the two that are always under way: 3. So the fourth receive comes behind the
    # consumer of the first message.
    assert texts(two_stages(num_microbatches=4)) == {
        "d0": "0RECV_B0@d1 0RECV_B1@d1 0RECV_B2@d1 0F0 0SEND_F0@d1 0F1 0SEND_F1@d1 0B0 0RECV_B3@d1 0F2 0SEND_F2@d1 "
        "0B1 0F3 0SEND_F3@d1 0B2 0B3 0STEP",
        "d1": "1RECV_F0@d0 1RECV_F1@d0 1RECV_F2@d0 1F0 1RECV_F3@d0 1B0 1SEND_B0@d0 1F1 1B1 1SEND_B1@d0 "
        "1F2 1B2 1SEND_B2@d0 1F3 1B3 1SEND_B3@d0 1STEP",
    }


def test_replicas_get_their_rows_and_reduce() -> None:
    groups = ((on("d0", "d1"), on("d0", "d1")), (on("d2"), on("d2")))
    assert texts(two_stages(num_microbatches=1, groups=groups, num_devices=3)) == {
        "d0": "0RECV_B0@d2 0F0 0SEND_F0@d2 0B0 0REDUCE_GRAD 0STEP",
        "d1": "0RECV_B0@d2 0F0 0SEND_F0@d2 0B0 0REDUCE_GRAD 0STEP",
        "d2": "1RECV_F0@d0 1RECV_F0@d1 1F0 1B0 1SEND_B0@d0 1SEND_B0@d1 1STEP",
    }


@pytest.mark.parametrize("recompute", [False, True])
def test_a_backward_elsewhere(recompute: bool) -> None:
    # Stage 1 runs forward on d1 and backward on d0: what it saved goes over right behind its forward, and the fresh
    # parameters come back. d0 steps stage 1 first, as its parameters travel.
    groups = ((on("d0"), on("d0")), (on("d1"), on("d0")))
    again = ("1R0 ", "0R0 ") if recompute else ("", "")
    assert texts(two_stages(num_microbatches=1, groups=groups, recompute=recompute)) == {
        "d0": f"1RECV_S0@d1 0F0 0SEND_F0@d1 {again[0]}1B0 {again[1]}0B0 1STEP 1SEND_P@d1 0STEP",
        "d1": "1RECV_F0@d0 1F0 1SEND_S0@d0 1RECV_P@d0",
    }


def test_several_micro_batches_of_a_backward_elsewhere() -> None:
    # Saved tensors of 8 bytes pass in 4 seconds: 2 + ceil(1 / 4) = 3 receives of them ahead on d1 -> d0, and none of
    # fresh parameters before the last forward of d1.
    groups = ((on("d0"), on("d0")), (on("d1"), on("d0")))
    assert texts(two_stages(num_microbatches=2, groups=groups, schedule_name="gpipe")) == {
        "d0": "1RECV_S0@d1 1RECV_S1@d1 0F0 0SEND_F0@d1 0F1 0SEND_F1@d1 1B0 1B1 0B0 0B1 1STEP 1SEND_P@d1 0STEP",
        "d1": "1RECV_F0@d0 1RECV_F1@d0 1F0 1SEND_S0@d0 1F1 1SEND_S1@d0 1RECV_P@d0",
    }


def test_ties_are_reduced_at_the_end() -> None:
    ties = (Tie(name="shared", parameter_bytes=4, units=(0, 1)),)
    assert texts(two_stages(num_microbatches=1, ties=ties)) == {
        "d0": "0RECV_B0@d1 0F0 0SEND_F0@d1 0B0 0REDUCE_TIE 0STEP",
        "d1": "1RECV_F0@d0 1F0 1B0 1SEND_B0@d0 0REDUCE_TIE 1STEP",
    }


def test_a_split_backward_sends_behind_the_input_gradient() -> None:
    assert texts(two_stages(num_microbatches=1, schedule_name="zb_h1")) == {
        "d0": "0RECV_B0@d1 0F0 0SEND_F0@d1 0I0 0W0 0STEP",
        "d1": "1RECV_F0@d0 1F0 1I0 1SEND_B0@d0 1W0 1STEP",
    }


def test_one_device_sends_nothing() -> None:
    groups = ((on("d0"), on("d0")), (on("d0"), on("d0")))
    assert texts(two_stages(num_microbatches=1, groups=groups)) == {"d0": "0F0 1F0 1B0 0B0 1STEP 0STEP", "d1": ""}


def positions(program: Program) -> dict[str, list[Action]]:
    return {name: list(program.actions(name)) for name in program.devices}


@reaches(sends=0.1, rings=0.05)
@examples(150)
@given(cases())
def test_what_holds_for_all(case: Case) -> None:
    costs = case.costs
    for name in NAMED_SCHEDULES:
        program = schedule(costs, name)
        lowered = place_messages(program, costs)
        before, after = positions(program), positions(lowered)
        for device, order in after.items():
            assert [action for action in order if action.kind < Kind.STEP] == before[device]
            _check_sends_follow_what_they_send(order)
        _check_links(after)
        _check_rings(after, costs.collectives, list(after))
        reach("sends", np.isin(lowered.kind, SEND_KINDS).any())
        reach("rings", len(costs.reductions))


def _check_sends_follow_what_they_send(order: list[Action]) -> None:
    made_by = {
        Kind.SEND_F: (Kind.F,),
        Kind.SEND_S: (Kind.F,),
        Kind.SEND_B: (Kind.I, Kind.B),
        Kind.SEND_P: (Kind.STEP,),
    }
    for place, action in enumerate(order):
        if action.kind in made_by:
            maker = next(earlier for earlier in order[place::-1] if earlier.kind <= Kind.STEP)
            assert maker.kind in made_by[action.kind]
            assert (maker.stage, maker.microbatch) == (action.stage, action.microbatch)


def _check_links(orders: dict[str, list[Action]]) -> None:
    sent: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    received: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    shift = {Kind.SEND_F: 1, Kind.SEND_B: -1}
    for device, order in orders.items():
        for action in order:
            if action.kind in SEND_KINDS:
                target = action.stage + shift.get(action.kind, 0)
                message = (SEND_KINDS.index(action.kind), target, action.microbatch)
                sent.setdefault((device, action.peer), []).append(message)
            elif action.kind in RECV_KINDS:
                message = (RECV_KINDS.index(action.kind), action.stage, action.microbatch)
                received.setdefault((action.peer, device), []).append(message)
    assert sent == received


def _check_rings(orders: dict[str, list[Action]], collectives: tuple[Collective, ...], names: list[str]) -> None:
    """On the links of a ring nothing but fresh parameters comes behind it; and rings come in one order everywhere."""
    rank = {
        (collective_kind(is_tie=item.is_tie, is_gather=item.is_gather), item.number): place
        for place, item in enumerate(collectives)
    }
    following: dict[int, set[int]] = {place: set() for place in rank.values()}
    for device, order in orders.items():
        seen: list[int] = []
        for place, action in enumerate(order):
            if action.kind < Kind.REDUCE_GRAD:
                continue
            number = rank[action.kind, action.stage]
            for earlier in seen:
                following[earlier].add(number)
            seen.append(number)
            target = dict(collectives[number].ring.links)[names.index(device)]
            later = [item for item in order[place:] if item.peer == names[target]]
            assert not any(item.kind in (Kind.SEND_F, Kind.SEND_B, Kind.SEND_S) for item in later)
    assert not any(first in following[second] for first in following for second in following[first])


@reaches(two_waiting=0.03)
@examples(100)
@given(cases(max_microbatches=8, straight=True))
def test_few_receives_wait_on_a_straight_pipeline(case: Case) -> None:
    """On every link at most two are posted and not used yet, and more only as far as the latency asks for it."""
    costs = case.costs
    flows, num = costs.flows, costs.num_microbatches
    for name in NAMED_SCHEDULES:
        for device, order in positions(place_messages(schedule(costs, name), costs)).items():
            here = costs.cluster.index[device]
            for peer in {action.peer for action in order if action.kind in RECV_KINDS}:
                there = costs.cluster.index[peer]
                latency, allowed = float(costs.cluster.latency_s[there, here]), 2
                for flow in np.flatnonzero((flows.source == there) & (flows.target == here)).tolist():
                    place = flows.target_replica[flow]
                    seconds = costs.forward_s[place] if flows.what[flow] == 0 else costs.input_grad_s[place]
                    period = max(float(flows.num_bytes[flow] / costs.cluster.bandwidth[there, here]), float(seconds))
                    if latency > 0:
                        # Compared before dividing: a period may be zero, or so small that the division overflows.
                        extra = num if latency >= num * period else math.ceil(latency / period)
                        allowed = max(allowed, 2 + min(num, extra))
                waiting = most_waiting(order, peer)
                assert waiting <= allowed
                reach("two_waiting", waiting >= 2)


def most_waiting(order: list[Action], peer: str) -> int:
    users = {Kind.RECV_F: (Kind.F,), Kind.RECV_B: (Kind.I, Kind.B)}
    waiting: set[Action] = set()
    most = 0
    for action in order:
        if action.kind in users and action.peer == peer:
            waiting.add(action)
            most = max(most, len(waiting))
        waiting = {
            item
            for item in waiting
            if not (
                action.kind in users[item.kind] and (action.stage, action.microbatch) == (item.stage, item.microbatch)
            )
        }
    return most


def test_saved_tensors_are_received_when_earlier_ones_are_gone() -> None:
    # Three may be under way: the fourth comes behind 1W0, which lets go of the first, not behind 1I0, which uses it.
    groups = ((on("d0"), on("d0")), (on("d1"), on("d0")))
    assert texts(two_stages(num_microbatches=4, groups=groups, schedule_name="zb_h1"))["d0"] == (
        "1RECV_S0@d1 1RECV_S1@d1 1RECV_S2@d1 0F0 0SEND_F0@d1 0F1 0SEND_F1@d1 1I0 0I0 1I1 1W0 1RECV_S3@d1 0W0 0F2 "
        "0SEND_F2@d1 0I1 1W1 0W1 1I2 0F3 0SEND_F3@d1 0I2 1W2 0W2 1I3 0I3 1W3 0W3 1STEP 1SEND_P@d1 0STEP"
    )


def test_fresh_parameters_do_not_call_for_saved_tensors_before_them() -> None:
    # 0RECV_P could be posted behind 0F4, and all saved tensors come before it on the link: it waits for their turn.
    groups = ((on("d0"), on("d1")), (on("d1"), on("d0")))
    wire = Wire(bandwidth=1000.0)
    case = two_stages(num_microbatches=5, groups=groups, schedule_name="gpipe", wire=wire)
    assert texts(case)["d0"].partition("0F4 0SEND_F4@d1 0SEND_S4@d1 ")[2] == (
        "1B0 1SEND_B0@d1 1RECV_S2@d1 1B1 1SEND_B1@d1 1RECV_S3@d1 1B2 1SEND_B2@d1 1RECV_S4@d1 0RECV_P@d1 1B3 "
        "1SEND_B3@d1 1B4 1SEND_B4@d1 1STEP 1SEND_P@d1"
    )


def test_nothing_stands_for_no_micro_batch() -> None:
    case = two_stages(num_microbatches=1)
    program = case.lowered(case.costs)
    assert program.microbatch[program.kind == Kind.STEP].tolist() == [NONE, NONE]


def test_a_message_that_takes_next_to_no_time() -> None:
    # Latency over a period of 5e-324 seconds is more than a float holds; all receives are posted at once, quietly.
    case = two_stages(num_microbatches=3)
    quick = msgspec.structs.replace(case.profile.units[0].times[0], forward_s=5e-324, input_grad_s=5e-324)
    sizes = msgspec.structs.replace(case.profile.units[0].sizes[0], cut_bytes=0)
    units = tuple(msgspec.structs.replace(unit, times=(quick,), sizes=(sizes,)) for unit in case.profile.units)
    profile = msgspec.structs.replace(case.profile, units=units)
    plan = msgspec.structs.replace(case.plan, profile=Origin(name="quick", digest=profile.digest))
    assert texts(Case(profile, case.cluster, plan))["d1"].startswith("1RECV_F0@d0 1RECV_F1@d0 1RECV_F2@d0 1F0")
