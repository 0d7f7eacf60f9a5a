"""The order that a plan file holds is the one that is used: no verb and no rank orders the actions again."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from penstock.plan import Plan
from penstock.schedules.registry import SCHEDULES
from tests.support.command_line import Run
from tests.support.small_emulation import needs_shaping
from tests.support.small_training import write_problem, write_script

NO_SCHEDULES = '''
"""Every schedule fails, in this process and in all that it starts."""
from types import MappingProxyType

import penstock.schedules.registry as registry

def _refuse(costs):
    raise AssertionError("a schedule was asked for an order")

registry.SCHEDULES = MappingProxyType({name: item._replace(order=_refuse) for name, item in registry.SCHEDULES.items()})
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_problem(tmp_path)
    write_script(tmp_path / "script.py")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_SCHEDULES)
    return tmp_path


def _penstock(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "site"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_schedules_do_fail(folder: Path) -> None:
    done = _penstock(folder, "simulate", "plan.json", "--schedule", "gpipe")
    assert done.returncode != 0
    assert "a schedule was asked for an order" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "plan.json"),
        ("check", "plan.json"),
        ("report", "plan.json", "-o", "report.html", "--no-baselines"),
        ("train", "script.py", "--plan", "plan.json", "--steps", "2"),
        pytest.param(("emulate", "plan.json"), marks=needs_shaping),
    ],
    ids=lambda words: words[0],
)
def test_every_verb_uses_the_order_of_the_file(folder: Path, words: tuple[str, ...]) -> None:
    done = _penstock(folder, *words)
    assert done.returncode == 0, done.stderr


MODULES = {
    "price": ("penstock.planners.solution", "penstock.simulate.evaluation"),
    "schedule": ("penstock.planners.solution", "penstock.simulate.evaluation"),
    "lower": ("penstock.simulate.evaluation",),
    "prove": ("penstock.simulate.evaluation",),
}
"""Where the steps from a plan to its timeline are called from."""


def _plan_of(value: Any) -> Any:
    """The plan of a call's first argument: a plan, or something that holds one."""
    return getattr(value, "plan", value)


def _key(plan: Plan) -> tuple[object, ...]:
    return plan.planner, plan.stages, plan.schedule


@pytest.mark.parametrize("planner", ["balanced", "auto"])
def test_plan_does_everything_once(run: Run, planner: str) -> None:
    words = ("plan", "--profile", "gpt2", "--cluster", "2 x T4 @ 1 GB/s", "-m", "4", "--planner", planner, "--json")
    bounding = import_module("penstock.cli.render.evaluation")
    with ExitStack() as stack:

        def count(module: Any, name: str) -> mock.Mock:
            return stack.enter_context(mock.patch.object(module, name, side_effect=getattr(module, name)))

        calls = {name: [count(import_module(home), name) for home in homes] for name, homes in MODULES.items()}
        bound = count(bounding, "lower_bound")
        code, out, _ = run(*words)
    assert code == 0
    plan = msgspec.convert(json.loads(out)["plan"], Plan)
    assert plan.has_order

    def times(name: str) -> int:
        """How often a step was taken for the chosen plan; other planners' plans are looked at too."""
        arguments = [_plan_of(call.args[0]) for item in calls[name] for call in item.call_args_list]
        return sum(_key(item) == _key(plan) for item in arguments)

    found = {name: times(name) for name in calls}
    # The search of auto prices and orders by itself, and hands over what it has.
    assert found == {"price": planner != "auto", "schedule": planner != "auto", "lower": 1, "prove": 1}
    assert bound.call_count == 1


def test_all_schedules_are_replaced() -> None:
    assert set(SCHEDULES) >= {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "pe", "auto", "auto_fused"}
