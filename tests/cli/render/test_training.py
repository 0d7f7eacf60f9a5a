"""The text of a training run."""

import pytest

import penstock
from penstock.cli.console import Console
from penstock.cli.render.training import show_training
from penstock.launch.runs.events import Stepped
from penstock.launch.training import TrainResult


def test_a_speed_up_that_cannot_be_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    profile = penstock.load_profile("vgg16", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 2, planner="balanced", schedule="1f1b")
    predicted = penstock.evaluate(plan, profile, cluster)

    def result(seconds: float) -> TrainResult:
        return TrainResult(tuple(Stepped(step, 1.0, 8, seconds) for step in range(6)), (), (), False, None)

    for single_s, is_marked in ((1.9, False), (3.5, True)):
        show_training(Console(), result(1.0), predicted, result(single_s))
        out, err = capsys.readouterr()
        assert f"{single_s:.2f} x speed-up" in out
        assert f"(quartiles {single_s:.2f} s and {single_s:.2f} s) in a single process" in out
        assert ("is not plausible" in err) == is_marked
