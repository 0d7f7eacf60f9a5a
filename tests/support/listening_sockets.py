"""The listening sockets of a process and its descendants, read from /proc, also inside their network namespaces."""

import ipaddress
import re
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
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    tree = [root]
    for pid in tree:
        tree += parents.get(pid, [])
    return tree


def listeners(root: int) -> list[Listener]:
    """The listening sockets of a process tree."""
    result = []
    for pid in process_tree(root):
        try:
            inodes = _socket_inodes(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
            is_own = Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
            for name in ("tcp", "tcp6"):
                for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == LISTEN and fields[9] in inodes:
                        result.append(Listener(pid, command, _address(fields[1].partition(":")[0]), is_own))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended
    return result


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = _SOCKET.fullmatch(str(path.readlink()))
        except FileNotFoundError:
            continue
        if match:
            inodes.add(match[1])
    return inodes


def _address(text: str) -> str:
    """An address of /proc/net/tcp: words of 4 bytes, each in the byte order of a little-endian host."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
