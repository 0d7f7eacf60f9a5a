"""A rank without `penstock train`: what it prints, and its exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import InputError, RunError
from penstock.launch.ranks import train_main as module
from penstock.launch.ranks.train_main import _fail, _Reporter, state_path
from penstock.launch.runs.events import Began, Event, EventReader, Failed, Noted, Started, Stepped

EVENTS: list[Event] = [Started(0, 0, 1), Began(3), Noted("a remark"), Stepped(3, 0.5, 12, 0.25)]


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_prints_what_every_rank_knows(rank: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = _Reporter(None, rank)
    for event in EVENTS:
        report(event)
    out, err = capsys.readouterr()
    assert out == ("" if rank else "a remark\nstep 3: loss 0.5, 250 ms, 48.0 rows/s\n")
    assert err == ""
    # Every rank prints its own error.
    report(Failed("RunError", "no", "there", "hint", status_table="table"))
    report(Failed("RunError", "no"))
    assert capsys.readouterr() == ("", "error: there: no\n  hint\ntable\nerror: no\n")


def test_events_go_to_the_file_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = _Reporter(str(tmp_path), 1)
    for event in EVENTS:
        report(event)
    assert report._writer is not None
    report._writer._file.close()
    assert EventReader(tmp_path, 1).new_events() == EVENTS
    assert capsys.readouterr() == ("", "")
    assert state_path(tmp_path, 1) != state_path(tmp_path, 2)


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("no"), 2), (RunError("no"), 1), (ValueError("no"), 1), (MemoryError(), 1), (KeyboardInterrupt(), 130)],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def leave(number: int) -> None:
        raise SystemExit(number)

    monkeypatch.setattr(module, "exit_now", leave)
    with pytest.raises(SystemExit) as caught:
        _fail(error, _Reporter(None, 1))
    assert caught.value.code == code
    err = capsys.readouterr().err
    assert err.count("error: ") == (code != 130)
    # Only an error of Penstock itself has a traceback.
    assert ("ValueError: no\nerror: " in err) == (type(error) is ValueError)


def test_invalid_input_of_the_standalone_command(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.launch.ranks.train_main",
        "none.py",
        "--plan",
        str(tmp_path / "none.json"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"error: {tmp_path / 'none.json'}: no such file\n" in done.stderr
    assert "Traceback" not in done.stderr
