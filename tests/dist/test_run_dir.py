"""Folders of runs that ended, run on, or were killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from penstock.dist.run_dir import ABANDONED_S, run_dir

RUN = """
import sys, time
from penstock.dist.run_dir import run_dir
with run_dir("test-run-") as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder, (then, then))


def test_it_is_gone_in_the_end(tmp_path: Path) -> None:
    def stopped() -> None:
        with run_dir("test-run-") as folder:
            (folder / "something").write_text("x")
            assert tmp_path in folder.parents
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert list(tmp_path.iterdir()) == []


def test_those_of_killed_runs_are_swept_and_no_others(tmp_path: Path) -> None:
    foreign = tmp_path / "test-run-without-lock"
    foreign.mkdir()
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        age(theirs, 2 * ABANDONED_S)
        with run_dir("test-run-"):
            assert theirs.is_dir()  # its process lives
        age(theirs, 0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with run_dir("test-run-") as ours:
            assert not theirs.exists()
            assert sorted(tmp_path.iterdir()) == sorted([ours, foreign])


def test_without_a_lock_an_hour_passes(tmp_path: Path) -> None:
    # A run that has made its folder, and not yet the lock, is a moment old.
    found = tmp_path / "test-run-found"
    found.mkdir()
    age(found, ABANDONED_S / 2)
    with run_dir("test-run-"):
        assert found.is_dir()
    age(found, 2 * ABANDONED_S)
    with run_dir("test-run-"):
        assert not found.exists()


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "lock").touch()
    (tmp_path / "test-run-link").symlink_to(precious)
    with run_dir("test-run-"):
        assert (precious / "lock").exists()


def test_an_empty_cache_of_torch_is_removed_and_no_other(tmp_path: Path) -> None:
    empty, used = tmp_path / "torchinductor_me", tmp_path / "torchinductor_you"
    with run_dir("test-run-"):
        empty.mkdir()
        (used / "fxgraph").mkdir(parents=True)
    assert not empty.exists()
    assert (used / "fxgraph").is_dir()
