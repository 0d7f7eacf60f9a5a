"""SIGTERM and SIGUSR1: training finishes the step, saves, and says how to go on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.host_lab import children
from tests.support.small_training import write_problem, write_script


class Training:
    def __init__(self, folder: Path, *options: str) -> None:
        write_problem(folder)
        self.script = write_script(
            folder / "script.py", f"time.sleep(0.05); open({str(folder / 'begun')!r}, 'a').write('x')"
        )
        plan = str(folder / "plan.json")
        self._begun = folder / "begun"
        self._command = [
            sys.executable,
            "-m",
            "penstock",
            "train",
            self.script,
            "--plan",
            plan,
            "--threads",
            "1",
            *options,
        ]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}

    def start(self, *options: str) -> "subprocess.Popen[str]":
        """Start it, and wait until it has made some steps."""
        self._begun.unlink(missing_ok=True)
        process = subprocess.Popen(
            [*self._command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        until_s = time.monotonic() + 90
        while not self._begun.exists() or self._begun.stat().st_size < 6:
            assert time.monotonic() < until_s
            assert process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.02)
        return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda number: number.name)
def test_it_saves_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals, thorough: bool) -> None:
    if number == signal.SIGUSR1 and not thorough:
        pytest.skip("SIGUSR1: with --thorough")
    checkpoints = tmp_path / "checkpoints"
    training = Training(tmp_path, "--checkpoint", str(checkpoints))
    process = training.start("--steps", "5000")
    # A batch system may signal all processes of a job. That does not end the ranks.
    for pid in (*children(process.pid), process.pid):
        os.kill(pid, number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    told = re.search(
        r"a signal ended the run after (\d+) of 5000 steps; they are saved in (.*)\. To go on, run the", out
    )
    assert told is not None, out
    assert told[2] == str(checkpoints)
    assert (checkpoints / f"step-{int(told[1]):08}").is_dir()
    assert "Traceback" not in out
    # The same command goes on there.
    done = training.start("--steps", str(int(told[1]) + 8)).communicate(timeout=60)[0]
    assert f"after {told[1]} steps" in done


def test_a_second_sigterm_ends_it_at_once(tmp_path: Path) -> None:
    training = Training(tmp_path)
    process = training.start("--steps", "5000")
    # The step does not end: rank 0 is stopped.
    for pid in children(process.pid):
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in out
