"""The figures of a training run, and the options that every rank gets."""

import math
from argparse import ArgumentParser
from dataclasses import replace

import pytest

from penstock.launch.runs.events import Stepped
from penstock.launch.train_options import TrainOptions, parse_options
from penstock.launch.training import TrainResult, loss_difference
from penstock.report.analysis.prediction import MIN_ITERATIONS_FOR_SPREAD


def result_of(*seconds: float, num_rows: int = 12) -> TrainResult:
    steps = tuple(Stepped(step, 1.0, num_rows, item) for step, item in enumerate(seconds))
    return TrainResult(steps, (), (), False, None)


def test_the_first_step_counts_only_if_there_is_no_other() -> None:
    assert result_of().step_s is None
    assert result_of().rows_per_s is None
    assert result_of(4.0).step_s == 4.0
    assert result_of(4.0).rows_per_s == 3.0
    assert result_of(400.0, 1.0, 2.0, 6.0).step_s == 2.0
    assert result_of(400.0, 1.0, 2.0, 6.0).rows_per_s == 6.0


def test_quartiles_need_several_steps() -> None:
    seconds = [float(step) for step in range(1, MIN_ITERATIONS_FOR_SPREAD + 1)]
    # The first step, a warm-up, does not count.
    assert result_of(99.0, *seconds[:-1]).step_quartiles_s is None
    found = result_of(99.0, *seconds).step_quartiles_s
    assert found == (1 + (len(seconds) - 1) / 4, 1 + 3 * (len(seconds) - 1) / 4)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (2.0, 2.0, 0.0),
        (2.0, 3.0, 0.5),
        (-2.0, -3.0, 0.5),
        (0.0, 0.25, 0.25),
        (0.0, -0.25, 0.25),
        (math.nan, math.nan, 0.0),
        (math.nan, 1.0, math.inf),
        (1.0, math.nan, math.inf),
        (math.inf, math.inf, 0.0),
        (math.inf, -math.inf, math.inf),
        (1.0, math.inf, math.inf),
    ],
)
def test_differences_of_losses(one: float, other: float, difference: float) -> None:
    assert loss_difference(Stepped(0, one, 1, 1.0), Stepped(0, other, 1, 1.0)) == difference


DEFAULT = TrainOptions("gpt.py:make", "plan.json")
CHANGED = TrainOptions(
    script="gpt.py:make",
    plan="plan.json",
    profile="a profile.json",
    cluster="c.toml",
    steps=7,
    global_batch_size=12,
    lr=0.25,
    seed=3,
    timeout=1.5,
    threads=2,
    gradient_accumulation_steps=4,
    clip_grad_norm=0.5,
    precision="bf16-mixed",
    device="cpu",
    any_kind=True,
    check_finite=True,
    checkpoint="kept",
    save_every=5,
)


def test_options_survive_the_command_line() -> None:
    assert DEFAULT.arguments == ["gpt.py:make", "--plan", "plan.json"]
    # Each option alone, and all together.
    cases = [DEFAULT, CHANGED]
    for name, value in vars(CHANGED).items():
        if value != getattr(DEFAULT, name):
            cases.append(replace(DEFAULT, **{name: value}))
    assert len(cases) == 18
    for options in cases:
        parser = ArgumentParser()
        parser.add_argument("--events")
        found, more = parse_options([*options.arguments, "--events", "here"], parser)
        assert found == options
        assert more.events == "here"
