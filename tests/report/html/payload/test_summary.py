"""Sentences about devices that lack memory: from half a byte on, and at most three of them."""

import dataclasses

import pytest

from penstock.plan.types import Stage, on
from penstock.report.html.payload.arrays import time_unit
from penstock.report.html.payload.summary import memory_sentences
from penstock.report.subject import ReportSubject
from penstock.simulate.evaluation import Evaluation, evaluate
from penstock.timeline import Timeline
from tests.support.small import equal_profile, hand_plan, one_host

# State of a layer: parameters, gradients and optimizer state are 1 + 1 + 2 times 100 B. No device keeps anything else.
NEEDED = 400


def evaluation_of(num_devices: int, memory_bytes: int | None) -> Evaluation:
    profile, cluster = equal_profile(num_devices, parameter_bytes=100), one_host(num_devices, memory_bytes=memory_bytes)
    stages = [
        Stage(start=number, stop=number + 1, forward=on(f"d{number}"), backward=on(f"d{number}"))
        for number in range(num_devices)
    ]
    return evaluate(hand_plan(profile, cluster, stages), profile, cluster, within_memory=False)


def sentences(num_devices: int, memory_bytes: int | None, timeline: Timeline | None = None) -> list[str]:
    item = evaluation_of(num_devices, memory_bytes)
    return memory_sentences(ReportSubject("one", timeline or item.timeline, item.costs))


@pytest.mark.parametrize("num_devices", [2, 3, 4, 5])
def test_at_most_three_devices(num_devices: int) -> None:
    assert sentences(num_devices, NEEDED - 1) == [
        f"d{number} needs 400 B and has 399 B: this plan does not fit." for number in range(min(num_devices, 3))
    ]


def test_enough_memory() -> None:
    assert sentences(2, NEEDED) == []
    assert sentences(2, None) == []


def test_a_measured_timeline_and_one_without_costs() -> None:
    timeline = evaluation_of(2, 1).timeline
    measured = dataclasses.replace(timeline, origin="measured")
    assert sentences(2, 1, measured)[0] == "d0 was predicted to need 400 B and has 1 B."
    assert memory_sentences(ReportSubject("one", timeline)) == []


@pytest.mark.parametrize(
    ("iteration_s", "unit_s"), [(4.0, 1e-9), (4.0000001, 1e-8), (40.0, 1e-8), (40.1, 1e-7), (4e9, 1.0), (4.1e9, 10.0)]
)
def test_ticks_fit_into_32_bits(iteration_s: float, unit_s: float) -> None:
    assert time_unit(iteration_s) == unit_s
