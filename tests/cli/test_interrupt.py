"""Ctrl-C: exit code 130 without a traceback, or the best plan so far with a word about it."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli import main as main_module
from penstock.cli.console import Console
from penstock.cli.options.search_space import AutoOptions
from penstock.cli.workflows import search as search_module
from penstock.planners.auto.search import search_plans
from tests.support.planner_cases import unequal


def raise_as_a_kernel_does(depth: int) -> None:
    """Python's report of a call that returned with an exception set."""
    error: BaseException = KeyboardInterrupt()
    for _ in range(depth):
        outer = SystemError("CPUDispatcher(<function run_polish>) returned a result with an exception set")
        outer.__cause__ = error
        error = outer
    raise error


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_inside_a_kernel(depth: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(main_module.cli, "main", lambda **_: raise_as_a_kernel_does(depth))
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    assert ended.value.code == 130
    assert capfd.readouterr().err == "error: interrupted\n"


def test_other_errors_of_the_system_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise SystemError("a fault of ours")

    monkeypatch.setattr(main_module.cli, "main", fail)
    with pytest.raises(SystemError, match="a fault of ours"):
        main_module.main()


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_a_search_says_that_it_was_interrupted(
    is_interrupted: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: Any, report: Callable[[Any], bool], **options: Any) -> Any:
        if is_interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return search_plans(*arguments, report=report, **options)

    monkeypatch.setattr(search_module, "search_plans", interrupted)
    solution = search_module.search(Console(), unequal(0, 4, 2, 4), AutoOptions(work=5))
    assert solution.plan.num_stages >= 1
    assert ("interrupted: this is the best plan found so far" in capfd.readouterr().err) == is_interrupted
