"""Training on several hosts, each with its own network, name and folders."""

import os
import re
import signal
import subprocess  # noqa: TC003 - cheap, and plain to read
import sys
import time
from pathlib import Path

import pytest

from tests.support.host_lab import HostLab, LabHost, host_lab, needs_hosts
from tests.support.small_training import IS_RANK_1, TWO_HOSTS, write_problem, write_script

pytestmark = needs_hosts
only_thorough = pytest.mark.usefixtures("_thorough")
LOAD_S = 5.0
"""Other work on the machine delays everything by up to this."""
PENSTOCK = (sys.executable, "-m", "penstock")


@pytest.fixture
def _thorough(thorough: bool) -> None:
    if not thorough:
        pytest.skip("more of several hosts: with --thorough")


class Training:
    """`penstock train` on the hosts of a lab, a rank on each."""

    def __init__(self, lab: HostLab, folder: Path, fault: str = "pass", *options: str) -> None:
        self.lab = lab
        self._folder = folder
        write_problem(folder, TWO_HOSTS)
        script = write_script(folder / "script.py", fault)
        plan = str(folder / "plan.json")
        self._words = [*PENSTOCK, "train", script, "--plan", plan, "--threads", "1", "--seed", "3", "-q", *options]
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, host: LabHost, *options: str) -> None:
        """Start the command on a host."""
        temporary = self._folder / f"{host.name}-tmp"
        temporary.mkdir(exist_ok=True)
        where = ("--nnodes", str(len(self.lab.hosts)), "--node-rank", str(host.number))
        command = [*self._words, *where, "--rdzv-endpoint", "host0:29555", *options]
        if host.number:
            command += ["--rdzv-endpoint", f"{self.lab.hosts[0].address}:29555"]
        self.running[host.number] = host.start(
            command,
            self._folder,
            self.log_path(host),
            TMPDIR=str(temporary),
            XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"],
        )

    def log_path(self, host: LabHost) -> Path:
        return self._folder / f"{host.name}.log"

    def log(self, host: LabHost) -> str:
        return self.log_path(host).read_text()

    def wait(self, timeout_s: float = 120.0) -> list[int]:
        """Wait for all commands, and return their exit codes by host."""
        return [self.running[number].wait(timeout_s) for number in sorted(self.running)]

    def await_text(self, path: Path, text: str, timeout_s: float = 90.0) -> None:
        until_s = time.monotonic() + timeout_s
        while not path.exists() or text not in path.read_text():
            assert time.monotonic() < until_s, path.read_text() if path.exists() else "no file"
            time.sleep(0.05)


def test_two_hosts_train_and_resume(tmp_path: Path) -> None:
    """Host names resolve to 127.0.1.1, and another interface has the same address on both hosts."""
    with host_lab(tmp_path, 2) as lab:
        first, second = lab.hosts
        training = Training(lab, lab.shared, "pass", "--checkpoint", str(lab.shared / "checkpoints"))
        # The second host is early: it waits for host 0.
        training.start(second, "--steps", "3")
        time.sleep(1)
        training.start(first, "--steps", "3")
        assert training.wait() == [0, 0], training.log(first) + training.log(second)
        assert (lab.shared / "checkpoints/step-00000003").is_dir()
        for host in lab.hosts:
            assert not list((lab.shared / f"{host.name}-tmp").iterdir())
        # Both go on where they were. Rank 0 decides, and says so.
        for host in lab.hosts:
            training.start(host, "--steps", "5")
        assert training.wait() == [0, 0], training.log(first) + training.log(second)
        assert (lab.shared / "checkpoints/step-00000005").is_dir()


def test_a_rank_that_is_killed_on_another_host(tmp_path: Path) -> None:
    with host_lab(tmp_path, 2) as lab:
        training = Training(lab, lab.shared, f"if step == 2 and {IS_RANK_1}: os.kill(os.getpid(), signal.SIGKILL)")
        for host in lab.hosts:
            training.start(host)
        assert training.wait() == [1, 1]
        for host in lab.hosts:
            text = training.log(host)
            assert "error: rank 1 was killed by SIGKILL at step 2 (device h1.d0, host host1); all ranks" in text, text
            assert text.count("error: ") == text.count("Last status of each rank:") == 1
            assert re.search(r"^  0 +host0 +h0\.d0 +step [12] ", text, re.MULTILINE), text
            assert not host.processes()


@only_thorough
def test_a_checkpoint_folder_that_is_not_shared(tmp_path: Path) -> None:
    with host_lab(tmp_path, 2) as lab:
        training = Training(lab, lab.shared, "pass", "--checkpoint", str(lab.private / "checkpoints"), "--steps", "1")
        for host in lab.hosts:
            training.start(host)
        assert training.wait() == [2, 2]
        for host in lab.hosts:
            assert "not visible on this host" in training.log(host) or "share" in training.log(host), training.log(host)
        # A checkpoint that only another host has is not passed over without a word.
        checkpoint = tmp_path / "host1/checkpoints/step-00000001"
        checkpoint.mkdir(parents=True)
        for host in lab.hosts:
            training.start(host)
        assert training.wait() == [2, 2]
        assert "host host1 has checkpoints here, but host host0, which has rank 0, has none" in training.log(
            lab.hosts[0]
        )


@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_that_vanishes(tmp_path: Path, lost: int, thorough: bool) -> None:
    """Nothing tells the others: no connection ends. They notice that it is silent."""
    if not thorough:
        pytest.skip("silent hosts: with --thorough")
    with host_lab(tmp_path, 2) as lab:
        training = Training(lab, lab.shared, "time.sleep(0.1); open('begun', 'a').write('x' * (step > 3))")
        for host in lab.hosts:
            training.start(host, "--steps", "1000")
        training.await_text(lab.shared / "begun", "xx")
        other = lab.hosts[1 - lost]
        lab.hosts[lost].lose()
        began_s = time.monotonic()
        assert training.running[other.number].wait(60) == 1
        assert time.monotonic() - began_s < 10 + LOAD_S
        text = training.log(other)
        assert (
            f"error: host host{lost} (node rank {lost}) is lost: it sent nothing for 5 s; all ranks were stopped"
            in text
        )
        assert not other.processes()
        training.running[lost].wait(30)


@only_thorough
def test_a_host_that_does_not_come_and_one_that_comes_late(tmp_path: Path) -> None:
    with host_lab(tmp_path, 2) as lab:
        first, second = lab.hosts
        training = Training(lab, lab.shared)
        training.start(first, "--startup-timeout", "2")
        assert training.wait() == [1]
        assert "error: node rank 1 of 2 hosts did not join within 2 s" in training.log(first)
        # A wait at the start is not limited by --timeout. It is told what is missing.
        training.start(first, "--timeout", "3", "--steps", "2")
        training.await_text(training.log_path(first), "waiting for node rank 1 of 2 hosts (10 s)")
        training.start(second, "--timeout", "3", "--steps", "2")
        assert training.wait() == [0, 0], training.log(first)


@only_thorough
def test_a_signal_on_any_host_ends_the_run_after_a_step(tmp_path: Path) -> None:
    with host_lab(tmp_path, 2) as lab:
        first, second = lab.hosts
        fault = "time.sleep(0.1); open('begun', 'a').write('x' * (step > 3))"
        training = Training(lab, lab.shared, fault, "--checkpoint", str(lab.shared / "checkpoints"))
        for host in lab.hosts:
            training.start(host, "--steps", "1000")
        training.await_text(lab.shared / "begun", "xx")
        second.signal(training.running[1], signal.SIGUSR1)
        assert training.wait() == [130, 130]
        for host in (first, second):
            assert "To go on, run the same command again" in training.log(host)


@only_thorough
def test_hosts_that_train_different_things(tmp_path: Path) -> None:
    with host_lab(tmp_path, 2) as lab:
        training = Training(lab, lab.shared)
        for host in lab.hosts:
            training.start(host, "--seed", str(host.number))
        assert training.wait() == [2, 2]
        for host in lab.hosts:
            assert "host host1 trains something else than host host0: plan " in training.log(host)
