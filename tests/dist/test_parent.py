"""Processes end when the one that started the run has ended, whoever their own parent is."""

import os
import subprocess
import sys
import time

import pytest

from penstock.dist.parent import STARTED_BY, started_by

# Starts a process that outlives it, unless that one watches `STARTED_BY`. It prints one line when it runs.
STARTER = """
import os, subprocess, sys
child = "import os; {prepare}from penstock.dist import parent; parent.CHECK_PARENT_S = 0.05; parent.exit_with_parent(); " \
    "print('runs', flush=True); import time; time.sleep({seconds}); print('outlives', flush=True)"
environment = dict(os.environ)
if {is_started_by_penstock}:
    environment["PENSTOCK_STARTED_BY"] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", child], env=environment)
input()
"""


def lines(seconds: float, *, is_started_by_penstock: bool, is_reaped: bool = True, prepare: str = "") -> list[str]:
    """What the child prints until it ends; the process that started it ends as soon as the child runs."""
    code = STARTER.format(seconds=seconds, is_started_by_penstock=is_started_by_penstock, prepare=prepare)
    environment = {name: value for name, value in os.environ.items() if name != STARTED_BY}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as starter:
        assert starter.stdout is not None
        found = [starter.stdout.readline()]
        time.sleep(0.2)  # several checks, while the starter lives
        starter.kill()
        if is_reaped:
            starter.wait()
        return [*found, *starter.stdout.readlines()]


@pytest.mark.parametrize("prepare", ["", "del os.pidfd_open; "])
def test_a_process_ends_with_the_one_that_started_the_run(prepare: str) -> None:
    began_s = time.monotonic()
    assert lines(120.0, is_started_by_penstock=True, prepare=prepare) == ["runs\n"]
    assert time.monotonic() - began_s < 60


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="pidfd_open is Linux only")
def test_a_process_ends_even_if_nobody_takes_the_exit_code_of_that_one() -> None:
    # The reader waits for the end of all output, and so for the child, before it takes the exit code.
    began_s = time.monotonic()
    assert lines(120.0, is_started_by_penstock=True, is_reaped=False) == ["runs\n"]
    assert time.monotonic() - began_s < 60


def test_a_process_of_another_launcher_goes_on() -> None:
    assert lines(0.5, is_started_by_penstock=False) == ["runs\n", "outlives\n"]


def test_the_process_that_started_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STARTED_BY, raising=False)
    assert started_by() == 0
    monkeypatch.setenv(STARTED_BY, "41")
    assert started_by() == 41
