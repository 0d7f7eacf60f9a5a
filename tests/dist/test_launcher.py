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
from penstock.dist.processes import Process
from penstock.dist.rendezvous import rank_environments

IGNORE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


def start(launcher: Launcher, code: str, **options: object) -> Process:
    return launcher.start([sys.executable, "-c", code], os.environ, **options)  # type: ignore[arg-type]


def stdout_of(process: Process) -> IO[bytes]:
    assert isinstance(process.handle, subprocess.Popen)
    assert process.handle.stdout is not None
    return process.handle.stdout


def ending(process: Process) -> tuple[int | None, bool]:
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


def test_a_wait_has_a_limit() -> None:
    calls: list[int] = []
    with Launcher(poll_s=0.01) as launcher:
        start(launcher, "import time; time.sleep(60)")
        assert not launcher.wait(lambda: calls.append(1), limit_s=0.2)
    assert calls


def test_a_wait_for_a_condition(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with Launcher() as launcher:
        start(launcher, f"import time; open({str(ready)!r}, 'w').close(); time.sleep(60)")
        assert launcher.wait_until(ready.exists, 30)
        assert not launcher.wait_until(lambda: False, 0.1)
        start(launcher, "import sys; sys.exit(1)")
        assert not launcher.wait_until(lambda: False, 30)


FORKS = """
import os, signal, sys, time
from penstock.dist import Launcher, sigterm_as_ctrl_c
def run(main, *more):
    endings = []
    with Launcher(lambda process: endings.append((process.number, process.code, process.was_stopped))) as launcher:
        with sigterm_as_ctrl_c():
            for item in (main, *more):
                launcher.fork(item)
            launcher.wait()
    print(sorted(endings), launcher.exit_code, flush=True)
def sleep():
    time.sleep(60)
    return 0
def fail():
    raise ValueError("no")
"""


def run_forks(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program that forks: the process of the tests has threads."""
    command = [sys.executable, "-c", FORKS + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def test_forked_processes_share_data_and_report_their_ends() -> None:
    done = run_forks("data = [3, 4]; print('once'); run(lambda: data[0] - 3, lambda: 0)")
    assert (done.stdout, done.stderr) == ("once\n[(0, 0, False), (1, 0, False)] 0\n", "")


def test_when_a_forked_process_fails_the_others_get_sigterm() -> None:
    # They do not inherit the handler of this process, which would raise KeyboardInterrupt.
    done = run_forks("run(sleep, fail)")
    assert done.stdout == f"[(0, {-signal.SIGTERM}, True), (1, 1, False)] 1\n"
    assert "ValueError: no" in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


def test_forked_processes_end_with_sigterm_of_their_parent() -> None:
    done = run_forks("run(sleep, lambda: (time.sleep(0.5), os.kill(os.getppid(), signal.SIGTERM), sleep())[0])")
    assert done.stdout == ""
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode == -signal.SIGINT


def test_forked_processes_end_with_their_parent(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    done = run_forks(
        f"run(lambda: (open({str(path)!r}, 'w').write(str(os.getpid())), sleep()),"
        "lambda: (time.sleep(0.5), os.kill(os.getppid(), signal.SIGKILL), sleep())[0])"
    )
    assert done.returncode == -signal.SIGKILL
    deadline_s = time.monotonic() + 10
    while is_alive(int(path.read_text())):
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
