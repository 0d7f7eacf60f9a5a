from pathlib import Path

import pytest

import penstock
from tests.support.command_line import Run

PLAN = ("plan", "--planner", "balanced", "--profile", "gpt2", "-b", "4", "--cluster", "2 x T4 @ 2 GB/s", "-m", "4")


@pytest.fixture
def plan(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert run(*PLAN, "-o", "plan.json", "-q").code == 0
    return tmp_path / "plan.json"


def test_the_calibrated_profile_predicts_what_was_measured(run: Run, plan: Path) -> None:
    done = run("calibrate", "plan.json=3 s", "-o", "calibrated.json")
    assert done.code == 0, done.err
    assert "compute:" in done.out
    assert "unknown" in done.out
    calibrated = penstock.load_profile("calibrated.json")
    cluster = penstock.load_cluster("2 x T4 @ 2 GB/s")
    loaded = penstock.load_plan(plan)
    assert penstock.evaluate(loaded, calibrated, cluster, strict=False).timeline.iteration_s == pytest.approx(3)
    again = run("simulate", "plan.json", "--profile", "calibrated.json", "--force", "-q")
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan.json", "-o", "x.json"), "names no time"),
        (("plan.json=soon", "-o", "x.json"), "soon"),
        (("missing.json=1s", "-o", "x.json"), "missing.json"),
        (("plan.json=1s", "-o", "plan.json"), "is an input"),
        (("plan.json=0 s", "-o", "x.json"), "more than 0 seconds"),
    ],
)
def test_bad_input(run: Run, plan: Path, words: tuple[str, ...], message: str) -> None:
    done = run("calibrate", *words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
