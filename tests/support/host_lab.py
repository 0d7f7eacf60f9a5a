"""Several hosts on this machine, for tests: each has its own network, host name, process numbers and a folder.

    bridge ──┬── eth0 of host0, 10.79.0.1
             └── eth0 of host1, 10.79.0.2

As on many real machines, each host's own name resolves to 127.0.1.1 there, and each has a second interface (docker0)
with an address that is the same everywhere and leads nowhere. `HostLab.private` is another folder on each host.

The kernel removes a host with its last process. Nothing of this machine changes: its files, its names, its network.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

import pytest

PROGRAMS = ("ip", "unshare", "nsenter", "mount")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_HOLD = "trap : TERM INT; echo; while :; do sleep 1000 & wait; done"
"""The first process of a host. Like that of a machine, it does not end at a signal."""


def _environment() -> dict[str, str]:
    """The environment of a new host: without the networks that other tests of this process have chosen."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("GLOO_", "NCCL_"))}


@cache
def why_no_hosts() -> str:
    """Why this machine cannot hold the lab; empty if it can."""
    missing = [name for name in PROGRAMS if which(name, path=_PATH) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (sh scripts/iproute2.sh)"
    if os.geteuid():
        return "hosts of their own need root"
    done = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], check=False)
    return "this kernel refuses namespaces" if done.returncode else ""


needs_hosts = pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts())


@dataclass(frozen=True)
class LabHost:
    """One host of the lab."""

    number: int
    init: int
    """Its first process, as this machine numbers it."""
    holder: subprocess.Popen[str]

    @property
    def name(self) -> str:
        """Its host name."""
        return f"host{self.number}"

    @property
    def address(self) -> str:
        """Its address in the network of the lab."""
        return address(self.number)

    def start(self, command: Sequence[str], folder: Path, output: Path, **settings: str) -> subprocess.Popen[bytes]:
        """Start a command on the host.

        Args:
            command: The program and its arguments.
            folder: Its working directory.
            output: The file of its standard output and error.
            **settings: More environment variables.
        """
        with output.open("wb") as file:
            return subprocess.Popen(
                [*self._enter("-m", "-u", "-n", "-p"), f"--wd={folder}", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={
                    **_environment(),
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "COLUMNS": "140",
                    **settings,
                },
            )

    def read(self, *command: str) -> str:
        """Run a command on the host, and return what it prints."""
        done = subprocess.run(
            [*self._enter("-m", "-u", "-n", "-p"), *command], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    def signal(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Signal a command of `start`, which is a child of its process."""
        os.kill(children(process.pid)[0], number)

    def processes(self) -> list[int]:
        """All processes on the host but its first one, as this machine numbers them."""
        namespace = Path(f"/proc/{self.init}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                    found.append(int(entry.name))
        return [pid for pid in found if pid != self.init and os.getpgid(pid) != os.getpgid(self.init)]

    def lose(self) -> None:
        """Let the host vanish, as with its power: no message leaves it any more, not even the end of a connection."""
        self._run("ip", "link", "set", "eth0", "down")
        os.kill(self.init, signal.SIGKILL)

    def cut_off(self) -> None:
        """Take its network away. Its processes continue."""
        self._run("ip", "link", "set", "eth0", "down")

    def _enter(self, *what: str) -> list[str]:
        return ["nsenter", "-t", str(self.init), *what]

    def _run(self, *command: str) -> None:
        subprocess.run([*self._enter("-n"), *command], check=True, env={**os.environ, "PATH": _PATH}, timeout=30)


@dataclass(frozen=True)
class HostLab:
    """The hosts of a lab, and their folders."""

    hosts: tuple[LabHost, ...]
    shared: Path
    """The same folder on all hosts."""
    private: Path
    """A folder that is another one on each host."""


@contextmanager
def host_lab(folder: Path, num_hosts: int) -> Iterator[HostLab]:
    """Make hosts that exist until the context ends.

    Args:
        folder: An empty folder of this machine.
        num_hosts: How many hosts.
    """
    shared, private = folder / "shared", folder / "private"
    shared.mkdir()
    private.mkdir()
    with ExitStack() as stack:
        switch = stack.enter_context(_namespaces("--net"))
        _ip(switch.init, "link add bridge type bridge forward_delay 0", "link set bridge up")
        hosts = []
        for number in range(num_hosts):
            host = stack.enter_context(_namespaces("--net", "--uts", "--mount", number=number))
            own, names = folder / host.name, folder / f"{host.name}.hosts"
            own.mkdir()
            others = [f"{address(other)} host{other}" for other in range(num_hosts) if other != number]
            names.write_text("\n".join(["127.0.0.1 localhost", f"127.0.1.1 {host.name}", *others, ""]))
            _ip(switch.init, f"link add port{number} type veth peer name eth0 netns {host.init}")
            _ip(switch.init, f"link set port{number} master bridge", f"link set port{number} up")
            _ip(host.init, "link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up")
            _ip(host.init, "link add docker0 type bridge", "addr add 172.17.0.1/16 dev docker0", "link set docker0 up")
            host.read("hostname", host.name)
            host.read("mount", "--bind", str(names), "/etc/hosts")
            host.read("mount", "--bind", str(own), str(private))
            hosts.append(host)
        yield HostLab(tuple(hosts), shared, private)


@contextmanager
def _namespaces(*kinds: str, number: int = -1) -> Iterator[LabHost]:
    """A process in new namespaces, which end with the context."""
    command = ["unshare", *kinds, "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", _HOLD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        init = children(holder.pid)[0]
        try:
            yield LabHost(number, init, holder)
        finally:
            # With it the kernel ends all processes of the host; then `unshare`, its parent, exits.
            with suppress(ProcessLookupError):
                os.kill(init, signal.SIGKILL)
            holder.wait(30)


def address(number: int) -> str:
    """The address of a host in the network of the lab."""
    return f"10.79.0.{number + 1}"


def children(pid: int) -> list[int]:
    """The children of a process of one thread, once it has some."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    until_s = time.monotonic() + 10
    while not (found := [int(word) for word in path.read_text().split()]):
        assert time.monotonic() < until_s, f"process {pid} has no children"
        time.sleep(0.01)
    return found


def _ip(init: int, *lines: str) -> None:
    command = ["nsenter", "-t", str(init), "-n", "ip", "-batch", "-"]
    done = subprocess.run(
        command, input="\n".join(lines), text=True, capture_output=True, check=False, env={**os.environ, "PATH": _PATH}
    )
    assert not done.returncode, done.stderr
