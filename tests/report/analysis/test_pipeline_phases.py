"""Warm-up, steady phase and drain, by hand."""

import penstock
from penstock.program.types import program_from_arrays
from penstock.report.analysis.pipeline_phases import Phases, phases
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.types import Timeline
from tests.support.strategies import equal_case, two_stages


def test_two_stages_by_hand() -> None:
    # d1 begins at 5; d1 is done at 13, d0 at 18.
    assert phases(evaluate_costs(two_stages(num_microbatches=2).costs).timeline) == Phases(5.0, 13.0)


def test_without_a_steady_phase() -> None:
    # One micro-batch, F = B = 1: d1 begins at 1 and is done at 3, while d0 is done at 4; then the same on one device.
    assert phases(evaluate_costs(equal_case([0, 1], 1, "gpipe").costs).timeline) == Phases(1.0, 3.0)
    assert phases(evaluate_costs(equal_case([0], 1, "gpipe").costs).timeline) == Phases(0.0, 2.0)


def test_nothing_is_empty() -> None:
    timeline = evaluate_costs(equal_case([0], 1, "gpipe").costs).timeline
    plan = timeline.program.plan
    empty = program_from_arrays(plan, ["d0"], [0], [], [], [])
    none = timeline.start_s[:0]
    assert phases(Timeline(empty, "simulated", none, none, none, none, none, none.astype(int))) == Phases(0.0, 0.0)
    assert penstock.bubble_fraction(timeline) == 0.0
