"""Carrying out what `network.py` says: namespaces that exist as long as their processes, and nowhere else.

No namespace gets a name in the file system and no interface of the machine's own namespace is touched, so there is
nothing to clean up: the kernel takes all of it down with the last process that is inside.
"""

import errno
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from penstock.emulation.network.syscalls import NEW_PROCESSES, become_root_inside, enter, new_network, unshare
from penstock.emulation.network.topology import MOST_DEVICES, SETTINGS, Network
from penstock.errors import InputError

NO_SHAPING_HINT = (
    "Run it as root (in a container: with CAP_SYS_ADMIN), or let users have namespaces of their own (sysctl "
    "user.max_user_namespaces); or run it over loopback, without shaped links: --no-shaping."
)


@dataclass(frozen=True)
class Built:
    """The namespaces, as open files."""

    network: Network
    switch: int
    hosts: dict[str, int]
    devices: tuple[int, ...]

    def change_link(self, source: int, target: int, factor: float) -> None:
        """Give a link another bandwidth while it is used."""
        _run("tc", self.devices[source], [self.network.link_change(source, target, factor)])


def leave_host() -> None:
    """Leave the machine's own network, before anything is made; its processes see nothing of ours."""
    try:
        if os.geteuid():
            become_root_inside()
        unshare(NEW_PROCESSES)
        os.close(new_network())
    except OSError as error:
        # What the kernel says then is "No space left on device", which leads people astray.
        why = "the limit of namespaces is reached" if error.errno == errno.ENOSPC else error.strerror
        what = f"shaped links need network namespaces, and this process may not make them ({why})"
        raise InputError(what, hint=NO_SHAPING_HINT) from None


def check_tools() -> None:
    """Shaping needs the two programs of iproute2."""
    missing = [tool for tool in ("ip", "tc") if which(tool, path=_path()) is None]
    if missing:
        raise InputError(
            f"shaped links need {' and '.join(missing)}",
            hint="Install iproute2, or run without shaped links: --no-shaping.",
        )


def build(network: Network) -> Built:
    """Make all of it. This process is in one of the namespaces afterwards."""
    if len(network.devices) > MOST_DEVICES:
        raise InputError(f"{len(network.devices):,} devices are too many to emulate: at most {MOST_DEVICES:,}")
    switch = new_network()
    hosts = {host: new_network() for host in network.hosts}
    devices = tuple(new_network() for _ in network.devices)
    _run("ip", switch, network.in_switch(hosts), [*hosts.values()])
    by_name = dict(zip(network.devices, devices, strict=True))
    for host, file in hosts.items():
        _run("ip", file, network.in_host(host, by_name), devices)
        _run("tc", file, network.uplink_shaping(host, outgoing=True))
        _run("tc", switch, network.uplink_shaping(host, outgoing=False))
    for rank, file in enumerate(devices):
        _run("ip", file, network.in_device(rank))
        _run("tc", file, network.device_shaping(rank))
        for name, value in SETTINGS.items():
            with suppress(FileNotFoundError):  # no such setting in this kernel
                Path("/proc/sys/net", name).write_text(value)
    return Built(network, switch, hosts, devices)


def _path() -> str:
    """Where the system's programs are; they are often not on a user's own path."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _run(tool: str, namespace: int, lines: Sequence[str], files: Sequence[int] = ()) -> None:
    if not lines:
        return
    enter(namespace)
    program = which(tool, path=_path())
    assert program is not None, "checked before"
    done = subprocess.run(
        [program, "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        capture_output=True,
        pass_fds=list(files),
        check=False,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"{tool} could not set up the network: {words[0] if words else f'exit code {done.returncode}'}",
            hint="The kernel must have veth, bridge, htb and u32. Run without shaped links: --no-shaping.",
        )
