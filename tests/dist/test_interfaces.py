"""The interface that has an address, and the address that leads to a host."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.dist.interfaces import address_towards, interface_of, is_loopback
from tests.support.host_lab import host_lab, needs_hosts

FIND = """
import sys
from penstock.dist.interfaces import address_towards, interface_of, is_loopback
found = address_towards(sys.argv[1], 29500)
print(found, interface_of(found or "-"), is_loopback(found or "-"))
"""


def test_the_loopback_interface() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("::ffff:127.0.0.1") == "lo"
    assert interface_of("203.0.113.7") is None
    assert address_towards("localhost", 1) in ("127.0.0.1", "::1")
    assert address_towards("no-such-host.invalid", 1) is None
    assert is_loopback("127.0.1.1")
    assert not is_loopback("10.0.0.1")


def test_ipv6() -> None:
    if not any(info[0] == socket.AF_INET6 for info in socket.getaddrinfo("localhost", 1)):
        pytest.skip("localhost has no IPv6 address here")
    assert interface_of("::1") == "lo"
    assert interface_of("2001:db8::1") is None


@needs_hosts
def test_between_hosts(tmp_path: Path) -> None:
    def find(host: object, *words: str) -> list[str]:
        return host.read(sys.executable, "-c", FIND, *words).split()  # type: ignore[attr-defined,no-any-return]

    with host_lab(tmp_path, 2) as lab:
        first, second = lab.hosts
        assert find(second, "host0") == [second.address, "eth0", "False"]
        assert find(second, first.address) == [second.address, "eth0", "False"]
        # Its own name leads to 127.0.1.1, its own address to the interface that has it.
        assert find(first, "host0")[2] == "True"
        assert find(first, first.address) == [first.address, "eth0", "False"]
        # A second address of the interface.
        subprocess.run(
            ["nsenter", "-t", str(first.init), "-n", "ip", "addr", "add", "10.80.0.1/24", "dev", "eth0", "label", "eth0:1"],
            check=True,
        )
        assert find(first, "10.80.0.1") == ["10.80.0.1", "eth0", "False"]
