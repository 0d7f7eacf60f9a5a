"""Lowered programs by hand, and what holds for all of them."""

import msgspec
import numpy as np
from hypothesis import given

from penstock.cluster.types import Wire
from penstock.plan.types import Origin
from penstock.program.actions import Kind, is_pass, is_send
from penstock.program.lowering.lowering import lower
from penstock.program.lowering.message_places import place_messages
from penstock.program.proof.proof import prove
from penstock.schedules.registry import schedule
from tests.support.reach import reach, reaches
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, reach_features, two_stages
from tests.support.thoroughness import examples


def texts(case: Case) -> dict[str, str]:
    """Each device's lowered actions in one line."""
    costs = case.costs
    program = case.lowered(costs)
    return {name: " ".join(map(str, program.actions(name))) for name in program.devices}


def test_receives_come_right_before_the_action_during_which_the_message_leaves() -> None:
    # d1 sends the gradients 3.5 seconds after each other, and each takes 3 seconds. At 0SEND_F1, d0 has nothing to do
    # until the first one arrives, and before that the second one leaves.
    assert texts(two_stages(num_microbatches=4)) == {
        "d0": "0F0 0SEND_F0@d1 0F1 0SEND_F1@d1 0RECV_B0@d1 0RECV_B1@d1 0B0 0F2 0SEND_F2@d1 0B1 0F3 0SEND_F3@d1 "
        "0RECV_B2@d1 0RECV_B3@d1 0B2 0B3 0STEP",
        "d1": "1RECV_F0@d0 1RECV_F1@d0 1F0 1B0 1SEND_B0@d0 1F1 1B1 1SEND_B1@d0 1RECV_F2@d0 1RECV_F3@d0 1F2 1B2 "
        "1SEND_B2@d0 1F3 1B3 1SEND_B3@d0 1STEP",
    }


def test_a_send_waits_for_a_buffer_of_the_receiver() -> None:
    # d1 is slow: its forwards end at 8, 16, ... seconds, those of d0 at 2, 4, ... It has buffers for two messages, and
    # for the third one when its first forward has ended.
    case = two_stages(num_microbatches=4, schedule_name="gpipe", wire=Wire(bandwidth=1000.0))
    devices = (case.cluster.devices[0], msgspec.structs.replace(case.cluster.devices[1], speed=0.25))
    cluster = msgspec.structs.replace(case.cluster, devices=devices)
    plan = msgspec.structs.replace(case.plan, cluster=Origin(name=cluster.name, digest=cluster.digest))
    assert texts(Case(case.profile, cluster, plan)) == {
        "d0": "0F0 0SEND_F0@d1 0F1 0SEND_F1@d1 0F2 0F3 0SEND_F2@d1 0SEND_F3@d1 0RECV_B0@d1 0B0 0RECV_B1@d1 0B1 "
        "0RECV_B2@d1 0B2 0RECV_B3@d1 0B3 0STEP",
        "d1": "1RECV_F0@d0 1RECV_F1@d0 1F0 1RECV_F2@d0 1F1 1RECV_F3@d0 1F2 1F3 1B0 1SEND_B0@d0 1B1 1SEND_B1@d0 1B2 "
        "1SEND_B2@d0 1B3 1SEND_B3@d0 1STEP",
    }


@reaches(several_devices=0.5, replicated=0.1, remote=0.1, recompute=0.1, tied=0.02)
@examples(100)
@given(cases())
def test_the_same_actions_in_another_order(case: Case) -> None:
    costs = case.costs
    for name in NAMED_SCHEDULES:
        program = schedule(costs, name)
        lowered, placed = lower(program, costs), place_messages(program, costs)
        prove(lowered, costs, within_memory=False)
        for device in program.devices:
            computes = [action for action in lowered.actions(device) if action.kind.is_compute]
            assert [action for action in computes if action.kind != Kind.STEP] == list(program.actions(device))
            assert computes == [action for action in placed.actions(device) if action.kind.is_compute]
            assert sorted(lowered.actions(device)) == sorted(placed.actions(device))
        assert int(is_pass(lowered.kind).sum()) == program.num_actions
        reach("sends", bool(np.any(is_send(lowered.kind))))
    reach_features(case)
