"""What is shown of a training."""

import pytest

import penstock
from penstock.cli.console import Screen
from penstock.cli.render.training import show_trained
from penstock.launch.events import Stepped
from penstock.launch.training import Trained


def test_a_speed_up_that_cannot_be_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    profile = penstock.load_profile("vgg16", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
    plan = penstock.plan(profile, cluster, 2, planner="balanced", schedule="1f1b")
    predicted = penstock.evaluate(plan, profile, cluster)

    def trained(seconds: float) -> Trained:
        return Trained(tuple(Stepped(step, 1.0, 8, seconds) for step in range(6)), (), (), False, None)

    for alone_s, is_marked in ((1.9, False), (3.5, True)):
        show_trained(Screen(), trained(1.0), predicted, trained(alone_s))
        out, err = capsys.readouterr()
        assert f"{alone_s:.2f} x as fast" in out
        assert f"(half of them {alone_s:.2f} s to {alone_s:.2f} s) in one process" in out
        assert ("do not trust this speed-up" in err) == is_marked
