"""The table of stages: layers and devices of each, and where its backward runs."""

import pytest

from penstock.cli.console import Console
from penstock.cli.render.evaluation import show_stages
from penstock.plan.types import Stage, on
from penstock.simulate.evaluation import evaluate
from tests.support.small import equal_profile, hand_plan, one_host


def test_stages(capsys: pytest.CaptureFixture[str]) -> None:
    profile, cluster = equal_profile(3, cut_bytes=3, parameter_bytes=7), one_host(3)
    stages = [
        Stage(start=0, stop=1, forward=on("d0"), backward=on("d2")),
        Stage(start=1, stop=3, forward=on("d1"), backward=on("d1")),
    ]
    plan = hand_plan(profile, cluster, stages)
    show_stages(Console(), plan, profile, evaluate(plan, profile, cluster))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "u0", "d0", "d2", "1.00", "s", "2.00", "s", "7", "B", "3", "B"] in rows
    assert ["1", "u1", "..", "u2", "d1", "same", "2.00", "s", "4.00", "s", "14", "B", "0", "B"] in rows
