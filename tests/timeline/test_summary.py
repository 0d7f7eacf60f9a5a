"""Bubbles, waits and the critical path: two stages by hand, and sums that must come out on random cases."""

import pytest
from hypothesis import given

from penstock.program.actions import Kind
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.summary import DeviceUse, bubble_fraction, critical_path, device_uses, waits
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, equal_case, two_stages
from tests.support.thoroughness import examples


def test_two_stages_by_hand() -> None:
    # The timeline is worked out in test_causes.py: d0 works 0-4, 12-14 and 16-18; d1 works 5-13.
    evaluation = evaluate_costs(two_stages(num_microbatches=2).costs)
    timeline = evaluation.timeline
    assert timeline.iteration_s == 18.0
    # Static 64; peaks as in test_memory.py; each sends two messages of 4 bytes.
    assert device_uses(timeline) == [
        DeviceUse("d0", 8.0, 0.0, 18.0, 10.0, 10.0, 92.0, 8.0),
        DeviceUse("d1", 8.0, 5.0, 13.0, 10.0, 0.0, 76.0, 8.0),
    ]
    assert bubble_fraction(timeline) == 20 / 36
    name = evaluation.program.name
    told = [
        (wait.device, name(wait.action), wait.start_s, wait.end_s, name(wait.cause), wait.transfer_s)
        for wait in waits(timeline)
    ]
    assert told == [
        # d0 waits from 4; the message sets out at 9: three of the eight seconds are the transfer's.
        ("d0", "0B0 on d0", 4.0, 12.0, "1SEND_B0@d0 on d1", 3.0),
        # The second message sets out at 13, before d0 is free at 14: all the wait is the transfer's.
        ("d0", "0B1 on d0", 14.0, 16.0, "1SEND_B1@d0 on d1", 2.0),
        ("d1", "1F0 on d1", 0.0, 5.0, "0SEND_F0@d1 on d0", 3.0),
    ]


def test_a_device_without_work_does_not_count() -> None:
    timeline = evaluate_costs(equal_case([0, 2], 1, "gpipe").costs).timeline
    assert [use.device for use in device_uses(timeline)] == ["d0", "d2"]
    # F = B = 1 on two stages in a row: 4 seconds, each works 2.
    assert bubble_fraction(timeline) == 0.5


def test_nothing_takes_time() -> None:
    costs = equal_case([0, 1], 2, "gpipe", forward_s=0.0, input_grad_s=0.0, weight_grad_s=0.0).costs
    timeline = evaluate_costs(costs).timeline
    assert timeline.iteration_s == 0.0
    assert bubble_fraction(timeline) == 0.0
    assert list(waits(timeline)) == []
    assert all(timeline.start_s[place] == 0.0 for place in critical_path(timeline))


@reaches(waits=0.1, messages=0.1, reduced=0.05)
@examples(150)
@given(cases())
def test_sums(case: Case) -> None:
    evaluation = evaluate_costs(case.costs)
    timeline, program = evaluation.timeline, evaluation.program
    iteration = timeline.iteration_s
    uses = device_uses(timeline)
    waited = dict.fromkeys(program.devices, 0.0)
    for wait in waits(timeline):
        assert 0 <= wait.transfer_s <= wait.end_s - wait.start_s
        assert program.kind[wait.cause] >= Kind.SEND_F
        reach("waits")
        waited[wait.device] += wait.end_s - wait.start_s
    for use in uses:
        assert use.busy_s + use.bubble_s == pytest.approx(iteration, rel=1e-9, abs=1e-9 * iteration)
        assert waited[use.device] + use.busy_s + (iteration - use.last_s) == pytest.approx(
            iteration, rel=1e-9, abs=1e-9 * iteration
        )
        assert waited[use.device] - use.first_s == pytest.approx(use.inner_bubble_s, rel=1e-9, abs=1e-9 * iteration)
        assert use.last_s - use.first_s - use.busy_s == use.inner_bubble_s
        number = program.devices.index(use.device)
        assert use.peak_bytes == pytest.approx(evaluation.proof.peak_bytes[number], rel=1e-12)
        assert 0 <= use.first_s <= use.last_s <= iteration
    if iteration > 0:
        mean = sum(use.bubble_s for use in uses) / len(uses)
        assert bubble_fraction(timeline) == pytest.approx(mean / iteration, rel=1e-12)
    messages = evaluation.proof.dependencies.num_bytes[: evaluation.proof.num_messages].sum()
    reduced = sum(len(item.ring.devices) * item.ring.sent_bytes for item in evaluation.costs.collectives)
    assert sum(use.sent_bytes for use in uses) == pytest.approx(float(messages) + reduced, rel=1e-12)
    reach("messages", messages)
    reach("reduced", reduced)
