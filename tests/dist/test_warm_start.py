"""Ranks that are forked from one process: as independent as ranks that are started one by one."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.dist import launcher as launcher_module
from penstock.dist import warm_start
from penstock.dist.launcher import Launcher
from penstock.dist.run_dir import stderr_path
from penstock.dist.processes import ForkedProcess, RankModule
from penstock.dist.warm_start import can_fork

Write = Callable[..., RankModule]

PRINT = """
import json, os, sys
facts = {
    "rank": os.environ["RANK"],
    "local_rank": os.environ["LOCAL_RANK"],
    "argv": sys.argv[1:],
    "main": sys.modules["__main__"].__dict__ is globals(),
    "name": __name__,
    "is_leader": os.getsid(0) == os.getpid() == os.getpgid(0),
    "parent": os.getppid(),
    "files": [name for name in sorted(os.listdir("/proc/self/fd")) if os.path.lexists(f"/proc/self/fd/{name}")],
    "stdin": os.readlink("/proc/self/fd/0"),
    "preloaded": "preloaded" in sys.modules,
}
print(json.dumps(facts), file=sys.stderr)
print("rank", os.environ["RANK"])
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the program of ranks, and a module `preloaded`. Without torch, whose import takes seconds."""
    monkeypatch.setattr(launcher_module, "TORCH_MODULES", ())
    monkeypatch.setattr(warm_start, "ACCELERATORS", ())
    monkeypatch.delenv(warm_start.SWITCH, raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))

    def write_module(code: str, *arguments: str, preload: str | None = None) -> RankModule:
        (tmp_path / "rank_program.py").write_text(code)
        if preload is not None:
            (tmp_path / "preloaded.py").write_text(preload)
        return RankModule("rank_program", arguments, () if preload is None else ("preloaded",))

    return write_module


def start(launcher: Launcher, module: RankModule, num_ranks: int, folder: Path) -> None:
    launcher.start_ranks(
        module, num_ranks, folder, stdout=folder / "stdout", stderr=lambda rank: stderr_path(folder, rank)
    )


def codes(launcher: Launcher) -> list[int | None]:
    return [process.code for process in launcher.processes]


def facts(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stderr_path(folder, rank).read_text())
    return found


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for_end(pid: int) -> None:
    deadline_s = time.monotonic() + 30
    while is_alive(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_rank_is_as_it_would_be_by_itself(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_warm: bool
) -> None:
    monkeypatch.setenv(warm_start.SWITCH, str(int(is_warm)))
    with Launcher() as launcher:
        start(launcher, write(PRINT, "--steps", "3", preload=""), 3, tmp_path)
        assert [isinstance(process.handle, ForkedProcess) for process in launcher.processes] == [is_warm] * 3
        pids = [process.handle.pid for process in launcher.processes]
        launcher.wait()
        assert codes(launcher) == [0, 0, 0]
    assert (tmp_path / "stdout").read_text() == "rank 0\n"
    assert len(set(pids)) == 3
    for rank in range(3):
        assert facts(tmp_path, rank) == {
            "rank": str(rank),
            "local_rank": str(rank),
            "argv": ["--steps", "3"],
            "main": True,
            "name": "__main__",
            "is_leader": True,
            "parent": os.getpid(),
            "files": ["0", "1", "2"],
            "stdin": "/dev/null",
            "preloaded": is_warm,
        }


def test_torch_is_imported_before_the_forks(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(warm_start, "ACCELERATORS", ())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import os, sys; print(sorted({'torch', 'torch._dynamo', 'torch.distributed'} & set(sys.modules)))"
    more = "; print(len(os.listdir('/proc/self/task')), os.environ['OMP_NUM_THREADS'])"
    (tmp_path / "rank_program.py").write_text(code + more)
    with Launcher() as launcher:
        # Numpy's threads end before a fork; no other library starts some.
        launcher.start_ranks(
            RankModule("rank_program", (), ("penstock.runtime",)),
            1,
            tmp_path,
            stdout=tmp_path / "stdout",
            OMP_NUM_THREADS="2",
        )
        launcher.wait()
        assert codes(launcher) == [0]
        assert isinstance(launcher.processes[0].handle, ForkedProcess)
    names, threads = (tmp_path / "stdout").read_text().splitlines()
    assert names == "['torch', 'torch._dynamo', 'torch.distributed']"
    assert threads == "1 2"


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV, ""),
        ("import atexit; atexit.register(print, 'at exit', file=__import__('sys').stderr)", 0, "at exit"),
    ],
)
def test_exit_codes(
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_warm: bool,
    code: str,
    status: int,
    message: str,
) -> None:
    monkeypatch.setenv(warm_start.SWITCH, str(int(is_warm)))
    with Launcher() as launcher:
        start(launcher, write(code), 1, tmp_path)
        launcher.wait()
        assert (codes(launcher), launcher.exit_code) == ([status], status)
    output = stderr_path(tmp_path, 0).read_text()
    assert message in output
    assert bool(output) == bool(message)


def test_when_a_rank_fails_the_others_are_ended(write: Write, tmp_path: Path) -> None:
    code = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(60)"
    with Launcher() as launcher:
        start(launcher, write(code), 3, tmp_path)
        launcher.wait()
        assert codes(launcher) == [-signal.SIGTERM, 3, -signal.SIGTERM]
        assert launcher.first_failed is launcher.processes[1]
        assert [process.was_stopped for process in launcher.processes] == [True, False, True]


def test_nothing_is_left_after_the_context(write: Write, tmp_path: Path) -> None:
    with Launcher() as launcher:
        start(launcher, write("import time; time.sleep(60)"), 2, tmp_path)
        pids = [process.handle.pid for process in launcher.processes]
        assert all(map(is_alive, pids))
    assert codes(launcher) == [-signal.SIGKILL] * 2
    assert not any(map(is_alive, pids))


def test_a_module_that_cannot_be_imported_is_left_to_the_ranks(write: Write, tmp_path: Path) -> None:
    with Launcher() as launcher:
        start(launcher, write("import preloaded", preload="raise RuntimeError('broken')"), 2, tmp_path)
        launcher.wait()
        assert launcher.exit_code == 1
    assert "RuntimeError: broken" in stderr_path(tmp_path, 0).read_text()


def test_ranks_of_a_template_that_dies_have_failed_with_its_code(write: Write, tmp_path: Path) -> None:
    preload = "import os, sys; print('out of luck', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    with Launcher() as launcher:
        start(launcher, write("pass", preload=preload), 2, tmp_path)
        launcher.wait()
        assert codes(launcher) == [-signal.SIGKILL] * 2
    assert [stderr_path(tmp_path, rank).read_text() for rank in range(2)] == ["out of luck\n", ""]


def test_a_process_with_threads_is_not_forked(write: Write, tmp_path: Path) -> None:
    preload = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    with Launcher() as launcher:
        start(launcher, write(PRINT, preload=preload), 2, tmp_path)
        assert all(isinstance(process.handle, subprocess.Popen) for process in launcher.processes)
        launcher.wait()
        assert codes(launcher) == [0, 0]
    assert [facts(tmp_path, rank)["preloaded"] for rank in range(2)] == [False, False]
    assert (tmp_path / "stdout").read_text() == "rank 0\n"


def test_ctrl_c_before_the_forks_ends_everything(write: Write, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    preload = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt() -> None:
        while not (begun.exists() and begun.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), Launcher() as launcher:
        start(launcher, write("pass", preload=preload), 2, tmp_path)
    assert not is_alive(int(begun.read_text()))
    assert codes(launcher) == [-signal.SIGKILL] * 2


def test_ctrl_c_between_the_forks_ends_the_ranks_that_run(write: Write, tmp_path: Path) -> None:
    # The first rank interrupts the launcher, which still waits for the others: their forks take a while.
    preload = """
import os, time
forks = []
def slow(real=os.fork):
    forks.append(1)
    if len(forks) > 2:
        time.sleep(60)
    return real()
os.fork = slow
"""
    code = "import os, signal, time; os.kill(int(os.environ['PENSTOCK_STARTED_BY']), signal.SIGINT); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt), Launcher() as launcher:
        start(launcher, write(code, preload=preload), 3, tmp_path)
    assert isinstance(launcher.processes[0].handle, ForkedProcess)
    assert codes(launcher) == [-signal.SIGKILL] * 3
    assert not any(is_alive(process.handle.pid) for process in launcher.processes)


@pytest.mark.parametrize("is_forked", [False, True])
def test_everything_ends_with_a_launcher_that_was_killed(write: Write, tmp_path: Path, is_forked: bool) -> None:
    kill = "import os, signal, time; os.kill(int(os.environ['PENSTOCK_STARTED_BY']), signal.SIGKILL); time.sleep(60)"
    note = f"import os; print(os.getpid(), file=open({str(tmp_path / 'ended')!r}, 'a'), flush=True)\n"
    prepare = "from penstock.dist import prepare_rank; prepare_rank()\n"
    write(note + prepare + kill, preload="" if is_forked else note + kill)
    code = f"""
from pathlib import Path
from penstock.dist import Launcher, RankModule, launcher, warm_start
launcher.TORCH_MODULES = warm_start.ACCELERATORS = ()
with Launcher() as run:
    run.start_ranks(RankModule("rank_program", (), ("preloaded",)), 2, Path({str(tmp_path)!r}))
    run.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=50, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = list(map(int, (tmp_path / "ended").read_text().split()))
    assert pids
    for pid in pids:
        wait_for_end(pid)


def test_orphans_are_adopted_only_meanwhile(write: Write, tmp_path: Path) -> None:
    value = ctypes.c_int(-1)
    with Launcher() as launcher:
        start(launcher, write("pass"), 1, tmp_path)
        launcher.wait()
    ctypes.CDLL(None).prctl(warm_start._PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    assert value.value == 0


def test_processes_with_an_accelerator_are_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(warm_start.SWITCH, raising=False)
    monkeypatch.setattr(warm_start, "ACCELERATORS", (str(tmp_path / "gpu[0-9]*"),))
    assert can_fork()
    (tmp_path / "gpu0").touch()
    assert not can_fork()


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "ACCELERATORS", ())
    monkeypatch.setenv(warm_start.SWITCH, "1")
    assert can_fork()
    monkeypatch.setenv(warm_start.SWITCH, "0")
    assert not can_fork()
    monkeypatch.delenv(warm_start.SWITCH)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not can_fork()
