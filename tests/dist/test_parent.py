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
child = "from penstock.dist import parent; parent.CHECK_PARENT_S = 0.05; parent.exit_with_parent(); " \
    "print('runs', flush=True); import time; time.sleep({seconds}); print('outlives', flush=True)"
environment = dict(os.environ)
if {is_started_by_penstock}:
    environment["PENSTOCK_STARTED_BY"] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", child], env=environment)
input()
"""


def lines(seconds: float, *, is_started_by_penstock: bool) -> list[str]:
    """What the child prints until it ends; the process that started it ends as soon as the child runs."""
    code = STARTER.format(seconds=seconds, is_started_by_penstock=is_started_by_penstock)
    environment = {name: value for name, value in os.environ.items() if name != STARTED_BY}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as starter:
        assert starter.stdout is not None
        found = [starter.stdout.readline()]
        time.sleep(0.2)  # several checks, while the starter lives
        starter.kill()
        starter.wait()
        return [*found, *starter.stdout.readlines()]


def test_a_process_ends_with_the_one_that_started_the_run() -> None:
    began_s = time.monotonic()
    assert lines(120.0, is_started_by_penstock=True) == ["runs\n"]
    assert time.monotonic() - began_s < 60


def test_a_process_of_another_launcher_goes_on() -> None:
    assert lines(0.5, is_started_by_penstock=False) == ["runs\n", "outlives\n"]


def test_the_process_that_started_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STARTED_BY, raising=False)
    assert started_by() == 0
    monkeypatch.setenv(STARTED_BY, "41")
    assert started_by() == 41
