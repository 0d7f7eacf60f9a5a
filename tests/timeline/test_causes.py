"""What each action waited for: a small example by hand, and on random cases a chain without gaps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.actions import NONE, Kind
from penstock.program.proof.proof import Proof, prove
from penstock.simulate.evaluation import evaluate_costs
from penstock.simulate.simulator import simulate
from penstock.timeline.summary import critical_path
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples


def test_by_hand() -> None:
    # Two stages, F = 2, B = 1 + 1; messages of 4 bytes at 2 bytes a second, one second of latency; two micro-batches.
    #   d0   F0 0-2, F1 2-4, sends 2-4 and 4-6, arriving at 5 and 7; B0 when its gradient has come, then B1, STEP
    #   d1   F0 5-7, B0 7-9, F1 9-11, B1 11-13; gradients sent at 9 and 13 arrive at 9 + 2 + 1 = 12 and 16
    #   d0   B0 12-14, B1 16-18, STEP 18
    evaluation = evaluate_costs(two_stages(num_microbatches=2).costs)
    timeline, program = evaluation.timeline, evaluation.program
    told = {}
    for place in range(program.num_actions):
        cause = int(timeline.cause[place])
        told[program.name(place)] = (
            float(timeline.start_s[place]),
            float(timeline.end_s[place]),
            program.name(cause) if cause != NONE else "",
        )
    assert told == {
        "0F0 on d0": (0, 2, ""),
        "0SEND_F0@d1 on d0": (2, 5, "0F0 on d0"),
        "0F1 on d0": (2, 4, "0F0 on d0"),
        # Ready when F1 is done, at 4, which is when the link is free too: the action is named.
        "0SEND_F1@d1 on d0": (4, 7, "0F1 on d0"),
        "0RECV_B0@d1 on d0": (9, 12, "1B0 on d1"),
        "0RECV_B1@d1 on d0": (13, 16, "1B1 on d1"),
        "0B0 on d0": (12, 14, "1SEND_B0@d0 on d1"),
        "0B1 on d0": (16, 18, "1SEND_B1@d0 on d1"),
        "0STEP on d0": (18, 18, "0B1 on d0"),
        "1RECV_F0@d0 on d1": (2, 5, "0F0 on d0"),
        "1RECV_F1@d0 on d1": (4, 7, "0F1 on d0"),
        "1F0 on d1": (5, 7, "0SEND_F0@d1 on d0"),
        "1B0 on d1": (7, 9, "1F0 on d1"),
        "1SEND_B0@d0 on d1": (9, 12, "1B0 on d1"),
        "1F1 on d1": (9, 11, "1B0 on d1"),
        "1B1 on d1": (11, 13, "1F1 on d1"),
        "1SEND_B1@d0 on d1": (13, 16, "1B1 on d1"),
        "1STEP on d1": (13, 13, "1B1 on d1"),
    }
    path = [program.name(place) for place in critical_path(timeline)]
    assert path == [
        "0F0 on d0",
        "0SEND_F0@d1 on d0",
        "1F0 on d1",
        "1B0 on d1",
        "1F1 on d1",
        "1B1 on d1",
        "1SEND_B1@d0 on d1",
        "0B1 on d0",
        # The step takes no time and ends with the backward: the first of those that end last closes the path.
    ]


@reaches(computed=0.1, moved=0.1, waited=0.1, across=0.1)
@examples(300)
@given(cases())
def test_causes_lead_back_to_the_start_without_a_gap(case: Case) -> None:
    costs = case.costs
    proof = prove(case.lowered(costs), costs)
    timeline, program = simulate(proof), proof.program
    slack = 1e-9 * timeline.iteration_s
    free = [0.0 for _ in program.devices]
    for place in range(program.num_actions):
        cause, start = int(timeline.cause[place]), float(timeline.start_s[place])
        if timeline.is_compute[place]:
            device = int(program.device_of[place])
            reach("waited", start > free[device])
            assert start == max(free[device], float(timeline.end_s[cause]) if cause != NONE else 0.0)
            free[device] = float(timeline.end_s[place])
        if cause == NONE:
            assert start == 0.0
        else:
            between = start - float(timeline.start_s[cause])
            piece = nearest(pieces(proof, timeline, cause), between)
            reach("moved" if int(proof.dependencies.transfer_of[cause]) != NONE else "computed")
            assert abs(between - piece) <= slack, f"{program.name(place)}: {between} after {program.name(cause)}"
    path = chain(timeline)
    assert critical_path(timeline) == path
    total = length(timeline, path[-1])
    for cause, place in pairwise(path):
        between = float(timeline.start_s[place] - timeline.start_s[cause])
        total += nearest(pieces(proof, timeline, cause), between)
    assert abs(total - timeline.iteration_s) <= slack
    reach("across", len(set(program.device_of[path].tolist())) > 1)


def chain(timeline: Timeline) -> list[int]:
    """From the action that ends last back to the first, over causes; a circle fails."""
    path = [int(np.argmax(timeline.end_s))]
    while timeline.cause[path[-1]] != NONE:
        path.append(int(timeline.cause[path[-1]]))
        assert len(path) <= len(timeline.cause), "the causes go round in a circle"
    return path[::-1]


def nearest(sizes: list[float], wanted: float) -> float:
    return min(sizes, key=lambda size: abs(size - wanted))


def shared_interface() -> Case:
    """Two one-unit models in a row: d0 -> d2 and d1 -> d2 cross the one interface of host b."""
    times = Times(kind="k", micro_batch_size=1, forward_s=1.0, input_grad_s=0.0, weight_grad_s=0.0)
    sizes = Sizes(micro_batch_size=1, cut_bytes=8, saved_bytes=0)
    units = tuple(Unit(name=name, parameter_bytes=0, sizes=(sizes,), times=(times,)) for name in "xy")
    profile = Profile(name="shared", micro_batch_size=1, units=units)
    hosts = (
        Host(name="a", inside=Wire(bandwidth=1.0)),
        Host(name="b", inside=Wire(bandwidth=1.0), interface_bandwidth=2.0),
    )
    devices = tuple(Device(name=f"d{place}", host=host, kind="k") for place, host in enumerate("aab"))
    cluster = Cluster(name="shared", hosts=hosts, devices=devices, between=Wire(bandwidth=4.0, latency_s=0.5))
    plan = Plan(
        planner="test",
        schedule="gpipe",
        num_microbatches=1,
        micro_batch_size=1,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=(
            Stage(start=0, stop=1, forward=on("d0", "d1"), backward=on("d0", "d1")),
            Stage(start=1, stop=2, forward=on("d2"), backward=on("d2")),
        ),
    )
    return Case(profile, cluster, plan)


def test_an_interface_is_shared() -> None:
    # Both replicas do half a second of forward, and send 4 bytes: 1 second on the link of 4 bytes a second, but
    # 2 seconds through the interface of 2 bytes a second. Both have half of it: they pass 0.5-4.5 and arrive at 5.
    evaluation = evaluate_costs(shared_interface().costs)
    timeline, program = evaluation.timeline, evaluation.program
    names = {program.name(place): place for place in range(program.num_actions)}
    first, second = names["0SEND_F0@d2 on d0"], names["0SEND_F0@d2 on d1"]
    assert timeline.start_s[first] == timeline.start_s[second] == 0.5
    assert timeline.end_s[first] == pytest.approx(5.0, rel=2e-3)
    assert timeline.end_s[second] == pytest.approx(5.0)
    assert timeline.cause[second] == names["0F0 on d1"]
    assert timeline.cause[names["1F0 on d2"]] == second


def length(timeline: Timeline, place: int) -> float:
    return float(timeline.end_s[place] - timeline.start_s[place])


def pieces(proof: Proof, timeline: Timeline, place: int) -> list[float]:
    """How long after its start an action can let another start: its seconds; or until its transfer has passed its
    link, or arrived. That is never sooner than if it had its interfaces alone."""
    dependencies = proof.dependencies
    transfer = int(dependencies.transfer_of[place])
    if transfer == NONE:
        assert proof.program.kind[place] <= Kind.STEP
        return [length(timeline, place)]
    assert length(timeline, place) >= float(dependencies.occupancy_s[transfer]) - 1e-9 * timeline.iteration_s
    taken, latency = length(timeline, place), float(dependencies.latency_s[transfer])
    return [taken - latency, taken]
