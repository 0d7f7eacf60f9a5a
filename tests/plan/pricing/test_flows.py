"""Flows by hand: two replicas to three, moved backwards, and what stays on a device."""

import numpy as np
from hypothesis import given

from penstock.plan.pricing.flows import ACTIVATION, GRADIENT, NONE, PARAMETERS, SAVED, Flows
from penstock.plan.types import Replica, on
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples


def rows(flows: Flows) -> list[tuple[int, int, int, int, int, float]]:
    columns = (flows.what, flows.source_replica, flows.target_replica, flows.source, flows.target, flows.num_bytes)
    return [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def test_two_replicas_to_three() -> None:
    # Shares 1/2 1/2 against 1/4 1/2 1/4; the cut has 4 bytes, so that each meeting carries one. Places 0 1 are the
    # first stage's, 2 3 4 the second's; d1 is in both: what place 1 and place 2 or 3 share stays if d1 has both.
    second = (Replica("d2", 0.25), Replica("d1", 0.5), Replica("d3", 0.25))
    flows = two_stages(
        num_microbatches=1, groups=((on("d0", "d1"), on("d0", "d1")), (second, second)), num_devices=4
    ).costs.flows
    assert rows(flows) == [
        (ACTIVATION, 0, 2, 0, 2, 1.0),
        (ACTIVATION, 0, 3, 0, 1, 1.0),
        (ACTIVATION, 1, 4, 1, 3, 1.0),
        (GRADIENT, 2, 0, 2, 0, 1.0),
        (GRADIENT, 3, 0, 1, 0, 1.0),
        (GRADIENT, 4, 1, 3, 1, 1.0),
    ]
    assert flows.local_forward.tolist() == [[1, 3]]
    assert flows.local_backward.tolist() == [[3, 1]]
    assert len(flows) == 6


def test_a_backward_elsewhere() -> None:
    # Stage 1: forward d1, backward d2. Saved 8 bytes go d1 -> d2, 16 bytes of parameters d2 -> d1.
    flows = two_stages(num_microbatches=1, groups=((on("d0"), on("d0")), (on("d1"), on("d2"))), num_devices=3)
    assert rows(flows.costs.flows) == [
        (ACTIVATION, 0, 1, 0, 1, 4.0),
        (GRADIENT, 1, 0, 2, 0, 4.0),
        (SAVED, 1, 1, 1, 2, 8.0),
        (PARAMETERS, 1, 1, 2, 1, 16.0),
    ]


def test_recomputation_moves_only_the_input() -> None:
    case = two_stages(
        num_microbatches=1, groups=((on("d1"), on("d0")), (on("d1"), on("d0"))), num_devices=2, recompute=True
    )
    # The model's input has 3 bytes, the cut 4.
    assert rows(case.costs.flows) == [
        (SAVED, 0, 0, 1, 0, 3.0),
        (SAVED, 1, 1, 1, 0, 4.0),
        (PARAMETERS, 0, 0, 0, 1, 16.0),
        (PARAMETERS, 1, 1, 0, 1, 16.0),
    ]


def test_replicas_that_swap_send_no_parameters() -> None:
    # d0 and d1 exchange their halves between forward and backward: both train the stage, and have it already.
    group, swapped = on("d0", "d1"), on("d1", "d0")
    case = two_stages(num_microbatches=1, groups=((group, swapped), (group, group)))
    assert rows(case.costs.flows) == [
        (GRADIENT, 2, 0, 0, 1, 2.0),
        (GRADIENT, 3, 1, 1, 0, 2.0),
        (SAVED, 0, 0, 0, 1, 4.0),
        (SAVED, 1, 1, 1, 0, 4.0),
    ]
    assert case.costs.flows.local_forward.tolist() == [[0, 2], [1, 3]]


def test_one_device_moves_nothing() -> None:
    flows = two_stages(num_microbatches=1, groups=((on("d0"), on("d0")), (on("d0"), on("d0")))).costs.flows
    assert rows(flows) == []
    assert flows.outgoing([0, 1], [0, 0], [1, 1]).tolist() == [NONE, NONE]
    assert flows.incoming(0, 0, 1).tolist() == NONE


@reaches(local=0.05, remote=0.05)
@examples(100)
@given(cases())
def test_everything_arrives_once(case: Case) -> None:
    costs = case.costs
    flows = costs.flows
    for what, cut, pairs, devices in (
        (ACTIVATION, costs.input_bytes, flows.local_forward, costs.forward_device),
        (GRADIENT, costs.output_bytes, flows.local_backward, costs.backward_device),
    ):
        for place in range(costs.num_replicas):
            stage = int(costs.replica_stage[place])
            edge = 0 if what == ACTIVATION else costs.plan.num_stages - 1
            mine = (flows.what == what) & (flows.target_replica == place)
            local = pairs[pairs[:, 1] == place, 0]
            if stage == edge:
                assert not mine.any()
                assert not len(local)
                continue
            arriving = float(flows.num_bytes[mine].sum())
            whole = float(cut[stage] * costs.share[place])
            reach("local" if len(local) else "remote")
            if len(local):
                assert arriving <= whole + 1e-6
            else:
                assert np.isclose(arriving, whole, rtol=1e-9, atol=1e-6)
            assert (devices[flows.target_replica[mine]] == flows.target[mine]).all()
    assert (flows.source != flows.target).all()


@reaches(activation=0.05, gradient=0.05, saved=0.05, parameters=0.05, replicated=0.05)
@examples(240)
@given(cases())
def test_found_by_what_they_are(case: Case) -> None:
    costs = case.costs
    flows = costs.flows
    for what in range(4):
        for place in range(-1, costs.num_replicas + 1):
            for device in range(-1, costs.num_devices + 1):
                for find, ends, peers in (
                    (flows.outgoing, flows.source_replica, flows.target),
                    (flows.incoming, flows.target_replica, flows.source),
                ):
                    match = np.flatnonzero((flows.what == what) & (ends == place) & (peers == device)).tolist()
                    assert int(find(what, place, device)) == (match[0] if match else NONE)
                    assert len(match) <= 1
    for name, what in (
        ("activation", ACTIVATION),
        ("gradient", GRADIENT),
        ("saved", SAVED),
        ("parameters", PARAMETERS),
    ):
        reach(name, (flows.what == what).any())
    reach("replicated", costs.num_replicas > case.plan.num_stages)
