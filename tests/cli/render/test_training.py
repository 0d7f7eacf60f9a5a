"""The text and the data of a training run."""

import dataclasses
import math
import re

import numpy as np
import pytest

from penstock.cli.console import Console
from penstock.cli.render.training import show_training, training_data
from penstock.launch.runs.events import MemoryMeasured, Stepped
from penstock.launch.training import TrainResult
from penstock.plan.types import Stage, on
from penstock.simulate.evaluation import Evaluation, evaluate
from tests.support.small import equal_profile, hand_plan, one_host


@pytest.fixture(scope="module")
def predicted() -> Evaluation:
    profile, cluster = equal_profile(2), one_host(2)
    stages = [Stage(start=index, stop=index + 1, forward=on(f"d{index}"), backward=on(f"d{index}")) for index in (0, 1)]
    return evaluate(hand_plan(profile, cluster, stages), profile, cluster)


def trained(losses: list[float], seconds: float = 1.0) -> TrainResult:
    return TrainResult(tuple(Stepped(step, loss, 8, seconds) for step, loss in enumerate(losses)), (), (), False, None)


def shown(capsys: pytest.CaptureFixture[str], predicted: Evaluation, *runs: TrainResult | None, **options: bool) -> str:
    result, single = runs
    assert result is not None
    show_training(Console(**options), result, predicted, single)
    return capsys.readouterr().out


def steps_of(out: str) -> list[tuple[int, str]]:
    """Step and difference of each row of the table of losses."""
    return [(int(step), off) for step, off in re.findall(r"^ *([0-9]+)  .*  (\S+)$", out, re.M)]


@pytest.mark.parametrize(
    ("num", "steps"),
    # All up to ten; more are spread evenly, with the first and the last: round(number * (num - 1) / 9).
    [
        (1, [0]),
        (10, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (11, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]),
        (28, [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]),
    ],
)
def test_losses_of_ten_steps_are_shown(
    capsys: pytest.CaptureFixture[str], predicted: Evaluation, num: int, steps: list[int]
) -> None:
    run = trained([1.0] * num)
    out = shown(capsys, predicted, run, run)
    assert steps_of(out) == [(step, "equal") for step in steps]
    assert f"all {num} losses are bitwise equal" in out
    assert [step for step, _ in steps_of(shown(capsys, predicted, run, run, verbose=True))] == list(range(num))


def test_losses_that_differ(capsys: pytest.CaptureFixture[str], predicted: Evaluation) -> None:
    single, result = trained([4.0, 2.0, 1.0]), trained([4.0, 2.5, 1.125])
    out = shown(capsys, predicted, result, single)
    assert "trained 3 steps: loss 4 to 1.125; median 8.0 rows/s" in out
    assert steps_of(out) == [(0, "equal"), (1, "2.5e-01"), (2, "1.2e-01")]
    assert "1 of 3 losses are bitwise equal; the largest relative difference is 2.5e-01 at step 1" in out
    assert not training_data(result, predicted, single)["single_process"]["losses_equal"]


def test_the_data_of_both_runs(predicted: Evaluation) -> None:
    result, single = trained([1.0, math.nan], 2.0), trained([1.0, math.nan], 3.0)
    data = training_data(result, predicted, single)
    assert (data["step_s"], data["rows_per_s"], data["error"], data["comparison"]) == (2.0, 4.0, None, None)
    assert data["single_process"] == {
        "steps": single.steps,
        "step_s": 3.0,
        "step_quartiles_s": None,
        "rows_per_s": 8 / 3,
        "losses_equal": True,
        "speed_up": 1.5,
    }
    # A run that was stopped is not equal, and without steps there is no speed-up.
    assert not training_data(trained([1.0]), predicted, single)["single_process"]["losses_equal"]
    assert training_data(trained([]), predicted, single)["single_process"]["speed_up"] is None
    assert "single_process" not in training_data(result, predicted, None)


def test_a_speed_up_that_cannot_be_is_marked(capsys: pytest.CaptureFixture[str], predicted: Evaluation) -> None:
    for single_s, is_marked in ((1.9, False), (2.0, False), (2.001, True), (3.5, True)):
        show_training(Console(), trained([1.0] * 6), predicted, trained([1.0] * 6, single_s))
        out, err = capsys.readouterr()
        assert f"{single_s:.2f} x speed-up" in out
        assert f"(quartiles {single_s:.2f} s and {single_s:.2f} s) in a single process" in out
        assert ("is not plausible" in err) == is_marked


def test_memory_of_accelerators_beside_the_prediction(
    capsys: pytest.CaptureFixture[str], predicted: Evaluation
) -> None:
    proof = dataclasses.replace(predicted.proof, peak_bytes=np.array([0.0, 8e9]))
    predicted = dataclasses.replace(predicted, proof=proof)
    used = MemoryMeasured(10_000_000_000, 12_000_000_000, 500_000_000, 16_000_000_000)
    result = dataclasses.replace(trained([1.0]), memory={"d1": used})
    (line,) = [line for line in shown(capsys, predicted, result, None).splitlines() if line.split()[:1] == ["d1"]]
    assert "1.25" in line
    assert "500 MB" in line
    assert "16.0 GB" in line
    (row,) = training_data(result, predicted, None)["memory"]
    assert (row["device"], row["predicted_bytes"], row["ratio"]) == ("d1", 8e9, 1.25)
    assert training_data(trained([1.0]), predicted, None)["memory"] == []
