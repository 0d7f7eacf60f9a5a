"""The listening sockets of a process and its descendants, read from /proc, also inside their network namespaces.

The kernel takes milliseconds to list the sockets of a network, and microseconds to list the files of a process. So
whoever watches a command asks for its `sockets` often, and for its `listeners` when these change.
"""

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


class Listener(NamedTuple):
    """A TCP socket that accepts connections."""

    pid: int
    command: str
    address: str
    is_own_network: bool
    """Whether it is in the network namespace of this process, that of the machine."""

    @property
    def is_reachable(self) -> bool:
        """Whether another machine may connect to it."""
        return self.is_own_network and not ipaddress.ip_address(self.address).is_loopback


def process_tree(root: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
    tree = [root]
    for pid in tree:
        tree += parents.get(pid, [])
    return tree


Sockets = Mapping[int, frozenset[str]]
"""The inodes of the sockets of each process that has some."""


def sockets(root: int) -> Sockets:
    """The sockets of a process tree."""
    found = {}
    for pid in process_tree(root):
        try:
            found[pid] = _socket_inodes(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended
    return {pid: inodes for pid, inodes in found.items() if inodes}


def listeners(processes: Sockets) -> list[Listener]:
    """Those of the sockets that listen."""
    own_network = Path("/proc/self/ns/net").readlink()
    addresses: dict[Path, dict[str, str]] = {}
    result = []
    for pid, inodes in processes.items():
        try:
            network = Path(f"/proc/{pid}/ns/net").readlink()
            if network not in addresses:
                addresses[network] = dict(_listening(pid))
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
            result += [
                Listener(pid, command, _address(addresses[network][inode]), network == own_network)
                for inode in inodes & addresses[network].keys()
            ]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended
    return result


def _listening(pid: int) -> Iterator[tuple[str, str]]:
    """Inode and address of the listening sockets in the network namespace of a process."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                yield fields[9], fields[1].partition(":")[0]


def _socket_inodes(pid: int) -> frozenset[str]:
    inodes = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = _SOCKET.fullmatch(str(path.readlink()))
        except FileNotFoundError:
            continue
        if match:
            inodes.add(match[1])
    return frozenset(inodes)


def _address(text: str) -> str:
    """An address of /proc/net/tcp: words of 4 bytes, each in the byte order of a little-endian host."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
