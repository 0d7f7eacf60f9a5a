"""Network interfaces: which one has an address, and which address leads to another host."""

import array
import socket
import struct
import sys
from pathlib import Path

_SIOCGIFCONF = 0x8912
_MAX_INTERFACES = 512
_ENTRY = 40
"""Bytes of an entry of the kernel's answer on 64 bits: a name of 16 bytes, and a socket address."""


def interface_of(address: str) -> str | None:
    """The name of the interface that has an address, or None if none has. Linux only.

    Args:
        address: An IPv4 or IPv6 address of this host.
    """
    if sys.platform != "linux":
        return None
    address = address.partition("%")[0].removeprefix("::ffff:")
    return _find_ipv6(address) if ":" in address else _find_ipv4(address)


def address_towards(host: str, port: int) -> str | None:
    """The address of this host from which messages to another one would leave; None if there is no route.

    Args:
        host: Name or address of the other host.
        port: A port there. Nothing is sent.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in infos:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return None


def is_loopback(address: str) -> bool:
    """Whether an address leads to this host only, as 127.0.1.1 does, to which some hosts' own names resolve."""
    return address.startswith("127.") or address == "::1"


def _find_ipv4(address: str) -> str | None:
    import fcntl  # not on every platform

    entries = array.array("B", bytes(_ENTRY * _MAX_INTERFACES))
    start, _ = entries.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFCONF, struct.pack("iL", len(entries), start))
    num_bytes = struct.unpack("iL", answer)[0]
    data = entries.tobytes()
    for offset in range(0, num_bytes, _ENTRY):
        if socket.inet_ntoa(data[offset + 20 : offset + 24]) == address:
            # A second address of an interface may have a label, as in eth0:1.
            return data[offset : offset + 16].partition(b"\0")[0].decode().partition(":")[0]
    return None


def _find_ipv6(address: str) -> str | None:
    try:
        digits = socket.inet_pton(socket.AF_INET6, address).hex()
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return None
    return next((line.split()[-1] for line in lines if line.startswith(digits)), None)
