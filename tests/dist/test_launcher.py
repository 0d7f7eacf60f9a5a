"""Supervision of processes that succeed, fail, ignore SIGTERM, or start others."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from penstock.dist import launcher as module
from penstock.dist.launcher import Launcher
from penstock.dist.rendezvous import rank_environments

IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


def start(launcher: Launcher, code: str, **options: object) -> module.Process:
    return launcher.start([sys.executable, "-c", code], os.environ, **options)  # type: ignore[arg-type]


def stdout_of(process: module.Process) -> IO[bytes]:
    assert isinstance(process.handle, subprocess.Popen)
    assert process.handle.stdout is not None
    return process.handle.stdout


def ending(process: module.Process) -> tuple[int | None, bool]:
    return process.code, process.was_stopped


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_all_end_well() -> None:
    with Launcher() as launcher:
        for _ in range(3):
            start(launcher, "pass")
        launcher.wait()
        assert launcher.exit_code == 0
        assert [ending(process) for process in launcher.processes] == [(0, False)] * 3


def test_when_one_fails_the_others_are_ended() -> None:
    with Launcher() as launcher:
        start(launcher, "import time; time.sleep(60)")
        start(launcher, "import sys; sys.exit(7)")
        began_s = time.monotonic()
        launcher.wait()
        assert time.monotonic() - began_s < 30
        assert launcher.exit_code == 7
        assert launcher.first_failed is launcher.processes[1]
        assert ending(launcher.processes[0]) == (-signal.SIGTERM, True)
        assert ending(launcher.processes[1]) == (7, False)


def test_a_process_that_ignores_sigterm_is_killed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHUTDOWN_S", 0.5)
    with Launcher() as launcher:
        process = start(launcher, IGNORE, stdout=subprocess.PIPE)
        output = stdout_of(process)
        assert output.readline()
        start(launcher, "import os; os.kill(os.getpid(), 11)")
        launcher.wait()
        output.close()
        assert launcher.exit_code == -signal.SIGSEGV
        assert ending(process) == (-signal.SIGKILL, True)


def test_nothing_is_left_after_the_context() -> None:
    child = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, "
    )
    with Launcher() as launcher:
        process = start(launcher, f"{child}flush=True); import time; time.sleep(60)", stdout=subprocess.PIPE)
        output = stdout_of(process)
        grandchild = int(output.readline())
        output.close()
    assert ending(process) == (-signal.SIGKILL, True)
    deadline_s = time.monotonic() + 10
    while is_alive(grandchild):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_environments_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("SET", "here")
    first, second = rank_environments(2, tmp_path, SET="default", OTHER="default")
    assert (first["RANK"], second["RANK"], second["LOCAL_RANK"]) == ("0", "1", "1")
    assert (first["WORLD_SIZE"], first["LOCAL_WORLD_SIZE"]) == ("2", "2")
    assert (first["SET"], first["OTHER"]) == ("here", "default")
    # Ranks of one host never listen on the network.
    assert first["GLOO_SOCKET_IFNAME"] == first["NCCL_SOCKET_IFNAME"] == "lo"
    assert Path(first["PENSTOCK_RENDEZVOUS_DIR"]).stat().st_mode & 0o077 == 0
