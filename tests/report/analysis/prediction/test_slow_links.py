"""Slow links in timelines that are simulated with such links or changed by hand."""

import numpy as np
import pytest

import penstock
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.actions import SEND_KINDS
from penstock.report.analysis.prediction import SlowLink, find_slow_links
from penstock.report.analysis.prediction.compare import compare_timelines, difference_sentences
from penstock.simulate.evaluation import Evaluation, evaluate_costs
from penstock.timeline.build import build_timeline
from penstock.timeline.types import Timeline
from tests.support.small import hand_plan

MESSAGE_BYTES = 2e6
"""For half of the rows of a micro-batch."""


def evaluate_links(*links: Link) -> Evaluation:
    """Two replicas (d0, d1) that send to d2: messages of 2 MB at 100 MB/s, so 20 ms each, and actions of 10 ms."""
    times = Times(kind="X", micro_batch_size=4, forward_s=0.01, input_grad_s=0.005, weight_grad_s=0.005)
    sizes = Sizes(micro_batch_size=4, cut_bytes=int(2 * MESSAGE_BYTES), saved_bytes=1000)
    units = tuple(Unit(name=name, parameter_bytes=4_000_000, sizes=(sizes,), times=(times,)) for name in "ab")
    profile = Profile(name="two", micro_batch_size=4, units=units, input_bytes=1000)
    cluster = Cluster(
        name="three",
        hosts=(Host(name="h", inside=Wire(bandwidth=100e6)),),
        devices=tuple(Device(name=f"d{number}", host="h", kind="X") for number in range(3)),
        between=Wire(bandwidth=100e6),
        links=links,
    )
    stages = (
        Stage(start=0, stop=1, forward=on("d0", "d1"), backward=on("d0", "d1")),
        Stage(start=1, stop=2, forward=on("d2"), backward=on("d2")),
    )
    plan = hand_plan(profile, cluster, stages, num_microbatches=4, rows=4)
    return evaluate_costs(price(plan, profile, cluster))


def link(source: str, target: str, bandwidth: float) -> Link:
    return Link(source=source, target=target, wire=Wire(bandwidth=bandwidth))


@pytest.fixture(scope="module")
def predicted() -> Timeline:
    return evaluate_links().timeline


def test_a_slow_link_is_named(predicted: Timeline) -> None:
    # At a tenth of the bandwidth every message takes 200 ms, and d2 has nothing else to do than to wait for each.
    slow = find_slow_links(predicted, [evaluate_links(link("d1", "d2", 10e6)).timeline])
    assert slow == (SlowLink("d1", ("d1", "d2"), 4, pytest.approx(0.02), pytest.approx(0.2)),)  # type: ignore[arg-type]
    assert slow[0].excess_s == pytest.approx(4 * 0.18)


def test_links_as_fast_as_predicted_are_not_slow(predicted: Timeline) -> None:
    assert find_slow_links(predicted, [predicted, predicted]) == ()
    # Faster than predicted is not slow either.
    assert find_slow_links(predicted, [evaluate_links(link("d1", "d2", 1e9)).timeline]) == ()


def test_one_bad_iteration_of_three_is_not_a_slow_link(predicted: Timeline) -> None:
    slow = evaluate_links(link("d1", "d2", 10e6)).timeline
    assert find_slow_links(predicted, [predicted, slow, predicted]) == ()
    assert len(find_slow_links(predicted, [slow, slow, predicted])) == 1


def test_links_without_excess_are_not_blamed(predicted: Timeline) -> None:
    # A message of 20 ms takes 23 ms at 87 MB/s: 4 x 3 ms more, of an iteration of more than 150 ms.
    slow = evaluate_links(link("d1", "d2", 87e6)).timeline
    comparison = compare_timelines(predicted, [slow])
    assert [item.devices for item in comparison.links] == [("d1", "d2")]
    excess_s, longer_s = comparison.links[0].excess_s, comparison.measured_s - comparison.predicted_s
    assert min(excess_s, longer_s) > 0.02 * comparison.predicted_s
    assert "The link from d1 to d2 was slow" in difference_sentences(comparison)[1]
    # As much lost, in an iteration that took as long as predicted, or of one that is far longer.
    assert len(difference_sentences(comparison._replace(measured_s=1.01 * comparison.predicted_s))) == 1
    longer = comparison._replace(predicted_s=100 * excess_s, measured_s=120 * excess_s)
    assert len(difference_sentences(longer)) == 1


def test_sums_over_a_slow_link(predicted: Timeline) -> None:
    # Two devices add up 4 MB: each sends 4 MB in all, at 10 MB/s instead of 100 MB/s.
    slow = find_slow_links(predicted, [evaluate_links(link("d0", "d1", 10e6)).timeline])
    assert slow == (SlowLink(None, ("d0", "d1"), 1, pytest.approx(0.04), pytest.approx(0.4)),)  # type: ignore[arg-type]
    assert slow[0].sentence == (
        "The network among d0, d1 was slow: an all-reduce took 400 ms instead of 40.0 ms: 360 ms more in total."
    )


def test_an_early_message_is_not_blamed(predicted: Timeline) -> None:
    """A rank waits for one message after the other, so it notices an early message after the slow one."""
    slow = evaluate_links(link("d0", "d2", 10e6))
    timeline, program = slow.timeline, slow.program
    to_last = np.isin(program.kind, SEND_KINDS) & (program.peer == 2)
    end_s = timeline.end_s.copy()
    for microbatch in range(4):
        rows = np.flatnonzero(to_last & (program.microbatch == microbatch))
        end_s[rows[program.device_of[rows] == 1]] = end_s[rows[program.device_of[rows] == 0]] + 1e-4
    measured = build_timeline(slow.proof, timeline.start_s, end_s, "measured")
    assert [item.devices for item in find_slow_links(predicted, [measured])] == [("d0", "d2")]


def test_a_message_without_a_waiting_device_is_not_blamed(predicted: Timeline) -> None:
    """Its arrival is noticed when its action is due, however early it was."""
    slow = evaluate_links()
    timeline, program = slow.timeline, slow.program
    end_s = timeline.end_s.copy()
    last = np.flatnonzero(np.isin(program.kind, SEND_KINDS) & (program.peer == 2) & (program.microbatch == 3))
    busy_s = 1.0
    # d2 is busy with another job until then.
    jobs = np.flatnonzero(timeline.is_compute & (program.device_of == 2) & (program.microbatch == 2))
    end_s[jobs[0]] = busy_s
    end_s[last] = busy_s
    start_s = timeline.start_s.copy()
    after = np.flatnonzero(timeline.is_compute & (program.device_of == 2) & (timeline.start_s > start_s[jobs[0]]))
    start_s[after] += busy_s
    end_s[after] += busy_s
    measured = build_timeline(slow.proof, start_s, end_s, "measured")
    assert not [item for item in find_slow_links(predicted, [measured]) if item.devices[1] == "d2"]


def test_one_device_has_no_links() -> None:
    profile = penstock.load_profile("vgg16", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("1 x T4 @ 1 GB/s")
    evaluation = penstock.evaluate(penstock.plan(profile, cluster, 2, planner="balanced"), profile, cluster)
    assert find_slow_links(evaluation.timeline, [evaluation.timeline]) == ()
