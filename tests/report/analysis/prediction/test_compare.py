"""Comparison of predicted and measured timelines, on times set by hand."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import penstock
from penstock.arrays import Floats
from penstock.plan.types import on
from penstock.program.actions import Kind
from penstock.report.analysis.prediction.compare import (
    KindRow,
    compare_timelines,
    difference_sentences,
    median_iteration,
    row_name,
)
from penstock.report.analysis.summation_order import reordered_sums
from penstock.simulate.evaluation import Evaluation
from penstock.timeline.build import build_timeline
from penstock.timeline.summary import bubble_fraction
from penstock.timeline.types import Timeline


@pytest.fixture(scope="module")
def predicted() -> Evaluation:
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b")
    return penstock.evaluate(plan, profile, cluster)


def _stretched(evaluation: Evaluation, factor: float) -> Timeline:
    timeline = evaluation.timeline
    return build_timeline(evaluation.proof, timeline.start_s * factor, timeline.end_s * factor, "measured")


def test_every_kind_of_every_stage(predicted: Evaluation) -> None:
    measured = [_stretched(predicted, factor) for factor in (1.0, 2.0, 5.0)]
    comparison = compare_timelines(predicted.timeline, measured)
    assert comparison.ratio == pytest.approx(2.0)
    assert comparison.num_measured == 3
    computing = [row for row in comparison.rows if row.is_compute]
    assert {(row.kind, row.stage) for row in computing} == {
        (Kind.F, 0), (Kind.F, 1), (Kind.B, 0), (Kind.B, 1), (Kind.STEP, None)
    }  # fmt: skip
    assert all(row.ratio == pytest.approx(2.0) for row in computing)
    assert [row.num for row in computing] == [4, 4, 4, 4, 1, 1]
    # Work and messages alike are twice as long, so as much is left idle.
    assert comparison.measured_bubble == pytest.approx(comparison.predicted_bubble)
    assert median_iteration(measured) is measured[1]


@pytest.mark.parametrize(
    ("kind", "stage", "name"),
    [
        (Kind.B, 1, "backward of stage 1"),
        (Kind.STEP, None, "optimizer step"),
        (Kind.REDUCE_GRAD, 0, "all-reduce of a group of stage 0"),
        (Kind.REDUCE_TIE, 2, "all-reduce of shared parameters 2"),
    ],
)
def test_names_of_rows(kind: Kind, stage: int | None, name: str) -> None:
    assert row_name(KindRow(kind, stage, ("d0",), 1, 1.0, 1.0)) == name


def test_what_differs_most_is_named(predicted: Evaluation) -> None:
    timeline, program = predicted.timeline, predicted.program
    slow = (program.kind == Kind.B) & (program.stage == 1)
    end_s = timeline.end_s + np.where(slow, 1.0, 0.0)
    measured = build_timeline(predicted.proof, timeline.start_s, end_s, "measured")
    lines = difference_sentences(compare_timelines(timeline, [measured]))
    assert len(lines) == 2
    assert "(one iteration was measured)" in lines[0]
    noted = difference_sentences(compare_timelines(timeline, [measured]), single_note="one of them is in the file")
    assert "(one of them is in the file)" in noted[0]
    two = difference_sentences(compare_timelines(timeline, [measured, measured]))
    assert "(median of 2)" in two[0]
    assert lines[1].startswith("Backward of stage 1 on d1 took 1.")
    assert lines[1].endswith("4 times an iteration: 4.00 s more in total.")


@pytest.mark.parametrize(
    ("factor", "text"),
    [(1.0009, "as predicted"), (0.9995, "as predicted"), (1.002, "0.2 % more"), (0.5, "50.0 % less")],
)
def test_tiny_differences_count_as_none(predicted: Evaluation, factor: float, text: str) -> None:
    lines = difference_sentences(compare_timelines(predicted.timeline, [_stretched(predicted, factor)]))
    assert f", {text} (" in lines[0]


def test_sums_in_another_order(predicted: Evaluation) -> None:
    # GPT-2 shares its table of tokens between the first and the last stage.
    assert [text.partition(":")[0] for text in reordered_sums(predicted.costs, predicted.program)] == [
        "stages 0, 1 share parameters"
    ]
    profile = penstock.load_profile("vgg16", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
    plain = penstock.evaluate(penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b"), profile, cluster)
    assert reordered_sums(plain.costs, plain.program) == []
    shared = penstock.evaluate(penstock.plan(profile, cluster, 4, planner="data_parallel"), profile, cluster)
    assert "stage 0 has 2 replicas" in reordered_sums(shared.costs, shared.program)[0]


@pytest.fixture(scope="module")
def shared() -> Evaluation:
    """Two replicas, then two devices that each have a stage of their own."""
    profile = penstock.load_profile("vgg16", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("4 x T4 @ 1 GB/s")
    plan = penstock.plan(profile, cluster, 4, planner="balanced", schedule="1f1b")
    both = msgspec.structs.replace(plan.stages[1], start=0, forward=on("d0", "d1"), backward=on("d0", "d1"))
    return penstock.evaluate(msgspec.structs.replace(plan, stages=(both, *plan.stages[2:])), profile, cluster)


def _measured(evaluation: Evaluation, start_s: Floats, end_s: Floats) -> Timeline:
    return build_timeline(evaluation.proof, start_s, end_s, "measured")


def test_a_slow_replica_has_a_row_of_its_own(shared: Evaluation) -> None:
    timeline, program = shared.timeline, shared.program
    slow = timeline.is_compute & (program.device_of == program.devices.index("d1"))
    taken = (timeline.end_s - timeline.start_s) * np.where(slow, 3.0, 1.0)
    comparison = compare_timelines(timeline, [_measured(shared, timeline.start_s, timeline.start_s + taken)])
    forwards = {row.devices: row.ratio for row in comparison.rows if row.kind == Kind.F and row.stage == 0}
    assert forwards == {("d0",): pytest.approx(1.0), ("d1",): pytest.approx(3.0)}
    assert [item.device for item in comparison.devices] == ["d1"]
    lines = difference_sentences(comparison)
    assert len(lines) == 2
    assert lines[1].startswith("d1 was slow: its actions took 3.00 times as long as predicted, ")


def test_replicas_that_keep_up_have_one_row(shared: Evaluation) -> None:
    comparison = compare_timelines(shared.timeline, [_stretched(shared, 2.0)])
    assert [row.devices for row in comparison.rows if row.kind == Kind.F and row.stage == 0] == [("d0", "d1")]


def test_a_device_that_is_slow_at_one_thing_is_not_slow(shared: Evaluation) -> None:
    timeline, program = shared.timeline, shared.program
    slow = (program.kind == Kind.B) & (program.device_of == program.devices.index("d1"))
    taken = (timeline.end_s - timeline.start_s) * np.where(slow, 3.0, 1.0)
    comparison = compare_timelines(timeline, [_measured(shared, timeline.start_s, timeline.start_s + taken)])
    assert comparison.devices == ()
    assert difference_sentences(comparison)[1].startswith("Backward of stage 0 on d1 took ")


def test_a_warm_up_iteration_is_no_result(predicted: Evaluation) -> None:
    warm = replace(_stretched(predicted, 2.0), is_warm_up=True)
    lines = difference_sentences(compare_timelines(predicted.timeline, [warm]))
    assert len(lines) == 1
    assert lines[0].startswith("Only the first iteration was measured, and it includes warm-up: it took ")
    assert " % more" not in lines[0]
    # Beside others it is one of them.
    lines = difference_sentences(compare_timelines(predicted.timeline, [warm, _stretched(predicted, 2.0)]))
    assert lines[0].startswith("An iteration was predicted to take ")


def test_a_common_factor_is_stated_once(predicted: Evaluation) -> None:
    comparison = compare_timelines(predicted.timeline, [_stretched(predicted, factor) for factor in (1.3, 1.4, 1.6)])
    assert comparison.common_ratio == pytest.approx(1.4)
    first, *others = difference_sentences(comparison)
    assert ", 40.0 % more (median of 3)" in first
    assert others[0].startswith("All actions took about 1.40 times as long as predicted: the devices are busy, or slow")
    assert not any(" was slow: its actions" in text or " on d" in text for text in others)
    faster = difference_sentences(compare_timelines(predicted.timeline, [_stretched(predicted, 0.5)]))
    assert faster[1].startswith("All actions took about 0.50 times as long as predicted: the devices are less busy")
    assert compare_timelines(predicted.timeline, [_stretched(predicted, 1.05)]).common_ratio is None


def test_sentences_table_and_picture_have_the_same_figures(shared: Evaluation) -> None:
    """Four iterations, in which d1 is slow by different factors and waits for different times."""
    timeline, program = shared.timeline, shared.program
    slow = timeline.is_compute & (program.device_of == program.devices.index("d1"))
    measured = []
    for factor, wait in ((2.0, 1.1), (3.0, 1.9), (4.0, 1.5), (5.0, 1.2)):
        taken = (timeline.end_s - timeline.start_s) * np.where(slow, factor, 1.0)
        start_s = timeline.start_s * factor * wait
        measured.append(_measured(shared, start_s, start_s + taken))
    comparison = compare_timelines(timeline, measured)
    pictured = median_iteration(measured)
    assert comparison.measured_s == pictured.iteration_s
    assert comparison.measured_bubble == bubble_fraction(pictured)
    own_s = sum(row.num * row.measured_s for row in comparison.rows if row.devices == ("d1",) and row.is_compute)
    assert [item.device for item in comparison.devices] == ["d1"]
    assert comparison.devices[0].measured_s == pytest.approx(own_s)
