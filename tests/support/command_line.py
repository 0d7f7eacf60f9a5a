"""The command line inside the test's process: fast, and with the same exit codes."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from penstock.cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["penstock", *words])
        monkeypatch.setenv("COLUMNS", "140")
        with pytest.raises(SystemExit) as caught:
            main()
        sys.stdout.flush()
        out, err = capfd.readouterr()
        return Outcome(int(caught.value.code or 0), out, err)

    return call
