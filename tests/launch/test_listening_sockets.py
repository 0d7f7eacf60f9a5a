"""No command that runs ranks on one host listens on the network, and none leaves temporary files behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

import penstock
from penstock.cluster.toml.writer import write_cluster
from tests.support.listening_sockets import Listener, Sockets, listeners, process_tree, sockets
from tests.support.small_emulation import needs_shaping, small
from tests.support.small_training import write_problem, write_script

# A background shell lets its children ignore Ctrl-C.
COMMAND = """
import signal
from penstock.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
POLL_S = 0.02
SLOW_POLLS = 10
"""After as many polls it is asked which sockets listen even if they are the same sockets."""
LIMIT_S = 120.0


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """An empty folder that is TMPDIR of the command."""
    path = tmp_path / "tmp"
    path.mkdir()
    return path


@pytest.fixture
def training(tmp_path: Path) -> list[str]:
    write_problem(tmp_path)
    script = write_script(tmp_path / "script.py", "time.sleep(0.05)")
    return ["train", script, "--plan", str(tmp_path / "plan.json"), "-q"]


def start(arguments: Sequence[str], temporary: Path, *, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    # An interface of the user's own choice must not open ports on one host.
    interface = next((name for _, name in socket.if_nameindex() if name.startswith(("eth", "en"))), "lo")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TMPDIR": str(temporary),
        "GLOO_SOCKET_IFNAME": interface,
    }
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments], env=environment, stdout=stdout, stderr=subprocess.PIPE
    )


def watch(process: subprocess.Popen[bytes]) -> set[Listener]:
    """The listening sockets of a command, until it ends."""
    seen: set[Listener] = set()
    last: Sockets = {}
    deadline_s = time.monotonic() + LIMIT_S
    for number in count():
        if process.poll() is not None:
            break
        found = sockets(process.pid)
        if found != last or number % SLOW_POLLS == 0:
            seen |= set(listeners(found))
        last = found
        assert time.monotonic() < deadline_s
        time.sleep(POLL_S)
    return seen


def check(arguments: Sequence[str], temporary: Path, *, is_shaped: bool = False) -> None:
    with start(arguments, temporary) as process:
        seen = watch(process)
        assert process.stderr is not None
        assert process.returncode == 0, process.stderr.read().decode()
    assert seen, "ranks have not been seen"
    assert [item for item in seen if item.is_reachable] == []
    assert any(not item.is_own_network for item in seen) == is_shaped
    assert list(temporary.iterdir()) == []


def test_the_helper_sees_an_open_port() -> None:
    with socket.create_server(("0.0.0.0", 0)):
        assert any(item.is_reachable for item in listeners(sockets(os.getpid())))
    with socket.create_server(("127.0.0.1", 0)):
        assert not any(item.is_reachable for item in listeners(sockets(os.getpid())))


def test_train(training: list[str], temporary: Path) -> None:
    check([*training, "--steps", "10"], temporary)


def test_check_numerics(training: list[str], temporary: Path) -> None:
    check(["check", training[3], "--numerics", training[1]], temporary)


def test_cluster_probe(temporary: Path) -> None:
    check(["cluster", "probe", "--local", "2", "-q"], temporary)


@pytest.fixture
def emulating(tmp_path: Path) -> list[str]:
    emulation = small()
    penstock.save_profile(emulation.profile, tmp_path / "profile.json")
    (tmp_path / "cluster.toml").write_text(write_cluster(emulation.cluster))
    penstock.save_plan(emulation.plan, tmp_path / "plan.json")
    sources = ("--profile", str(tmp_path / "profile.json"), "--cluster", str(tmp_path / "cluster.toml"))
    return ["emulate", str(tmp_path / "plan.json"), *sources, "-q"]


SHAPINGS = [("--no-shaping",), pytest.param((), marks=needs_shaping)]


@pytest.mark.parametrize("shaping", SHAPINGS)
def test_emulate(emulating: list[str], temporary: Path, shaping: tuple[str, ...]) -> None:
    check([*emulating, *shaping, "--steps", "2"], temporary, is_shaped=not shaping)


def test_profile(training: list[str], temporary: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "measured.json")
    measured = ("--seconds", "0", "--busy-processes", "1", "--remeasure-overheads", "-q", "-o", output)
    check(["profile", training[1], *measured], temporary)


def test_a_failed_run_leaves_nothing_but_one_clear_message(
    training: list[str], temporary: Path, tmp_path: Path
) -> None:
    training[1] = write_script(tmp_path / "fails.py", 'if step == 2: raise ValueError("no more data")')
    with start([*training, "--steps", "9"], temporary, stdout=subprocess.PIPE) as process:
        out, err = (text.decode() for text in process.communicate(timeout=LIMIT_S))
        assert process.returncode == 2
    assert list(temporary.iterdir()) == []
    assert "ValueError: no more data" in err
    assert err.count("error: ") == 1
    assert "Traceback" not in err + out
    assert "Last status of each rank:" not in err
    assert len(err.splitlines()) <= 8


def stop(arguments: Sequence[str], temporary: Path, number: signal.Signals) -> str:
    """Stop a command when its ranks listen. Returns what it writes to standard error."""
    with start(arguments, temporary) as process:
        deadline_s = time.monotonic() + LIMIT_S
        while not listeners(sockets(process.pid)):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
        processes = process_tree(process.pid)[1:]
        process.send_signal(number)
        assert process.wait(30) == 130
        assert process.stderr is not None
        error = process.stderr.read().decode()
    assert list(temporary.iterdir()) == []
    assert processes
    assert [pid for pid in processes if Path(f"/proc/{pid}").exists()] == []
    return error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_nothing(training: list[str], temporary: Path, number: signal.Signals) -> None:
    stop([*training, "--steps", "500"], temporary, number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("shaping", SHAPINGS)
def test_a_stopped_emulation_leaves_nothing(
    emulating: list[str], temporary: Path, number: signal.Signals, shaping: tuple[str, ...]
) -> None:
    error = stop([*emulating, *shaping, "--steps", "500"], temporary, number)
    assert "KeyboardInterrupt" not in error
    assert "rank" not in error
