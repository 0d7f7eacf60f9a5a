"""Creation of the network of `topology.py`, in namespaces that exist only as long as their processes.

No namespace has a name in the file system, and no interface of the host's own namespace is changed. Nothing has to be
cleaned up: the kernel removes everything with the last process inside.
"""

import errno
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from penstock.emulation.network.syscalls import NEW_PROCESSES, become_root_inside, enter_namespace, new_network, unshare
from penstock.emulation.network.topology import MAX_DEVICES, SETTINGS, Network
from penstock.errors import InputError

NO_SHAPING_HINT = (
    "Run as root (in a container: with CAP_SYS_ADMIN), allow user namespaces (sysctl user.max_user_namespaces), or "
    "run over loopback without shaped links: --no-shaping."
)


@dataclass(frozen=True)
class BuiltNetwork:
    """The namespaces of a network, as open files."""

    network: Network
    switch: int
    hosts: dict[str, int]
    devices: tuple[int, ...]

    def change_link(self, source: int, target: int, factor: float) -> None:
        """Change the bandwidth of a link while it is in use."""
        _run("tc", self.devices[source], [self.network.link_change(source, target, factor)])


def leave_host() -> None:
    """Move this process into new namespaces. The host's processes and network are not affected.

    Raises:
        InputError: This process may not create namespaces.
    """
    try:
        if os.geteuid():
            become_root_inside()
        unshare(NEW_PROCESSES)
        os.close(new_network())
    except OSError as error:
        # The message of the kernel is "No space left on device", which is misleading.
        why = "the limit on namespaces is reached" if error.errno == errno.ENOSPC else error.strerror
        what = f"shaped links need network namespaces, which this process may not create ({why})"
        raise InputError(what, hint=NO_SHAPING_HINT) from None


def check_tools() -> None:
    """Check that the programs of iproute2 are installed.

    Raises:
        InputError: They are not.
    """
    missing = [tool for tool in ("ip", "tc") if which(tool, path=_path()) is None]
    if missing:
        raise InputError(
            f"shaped links need {' and '.join(missing)}",
            hint="Install iproute2, or run without shaped links: --no-shaping.",
        )


def build_network(network: Network) -> BuiltNetwork:
    """Create all namespaces of a network. Afterwards this process is inside one of them.

    Raises:
        InputError: There are too many devices, or the kernel lacks a feature.
    """
    if len(network.devices) > MAX_DEVICES:
        raise InputError(f"{len(network.devices):,} devices cannot be emulated; the maximum is {MAX_DEVICES:,}")
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
            with suppress(FileNotFoundError):  # this kernel does not have the setting
                Path("/proc/sys/net", name).write_text(value)
    return BuiltNetwork(network, switch, hosts, devices)


def _path() -> str:
    """Return the search path with the system's programs, which are often not on a user's path."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def _run(tool: str, namespace: int, lines: Sequence[str], files: Sequence[int] = ()) -> None:
    if not lines:
        return
    enter_namespace(namespace)
    program = which(tool, path=_path())
    assert program is not None, "check_tools() has checked this"
    done = subprocess.run(
        [program, "-batch", "-"],
        input="\n".join(lines) + "\n",
        text=True,
        capture_output=True,
        pass_fds=list(files),
        check=False,
    )
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"{tool} could not set up the network: {output[0] if output else f'exit code {done.returncode}'}",
            hint="The kernel must support veth, bridge, htb and u32. Without them, use --no-shaping.",
        )
