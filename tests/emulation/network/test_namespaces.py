"""Real namespaces: links have the bandwidth that they should, and nothing is left behind."""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.emulation.network.namespaces import BuiltNetwork, build_network, leave_host
from penstock.emulation.network.syscalls import become_root_inside, enter_namespace
from penstock.emulation.network.topology import Network
from penstock.errors import InputError
from tests.support.small_emulation import needs_shaping
from tests.support.undisturbed import undisturbed

CLUSTER = Cluster(
    name="three",
    hosts=(
        Host(name="a", inside=Wire(bandwidth=800e6), interface_bandwidth=300e6),
        Host(name="b", inside=Wire(bandwidth=800e6)),
    ),
    devices=tuple(Device(name=f"d{number}", host="aab"[number], kind="X") for number in range(3)),
    between=Wire(bandwidth=400e6),
    links=(Link(source="d2", target="d0", wire=Wire(bandwidth=100e6)),),
)
SLOW_DOWN = 10.0
MESSAGE = bytes(2_000_000)


def inside(work: Callable[[BuiltNetwork], bool]) -> None:
    """Do something in a process of its own that has left the machine's network; it must give True."""
    pid = os.fork()
    if not pid:
        leave_host()
        # The first process that is started from here on is the first of the new namespace, and ends it.
        pid = os.fork()
        if pid:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        code = 1
        try:
            code = 0 if work(build_network(Network(CLUSTER, ("d0", "d1", "d2"), SLOW_DOWN))) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def rate(built: BuiltNetwork, *links: tuple[int, int]) -> float:
    """Bytes a second over links that are used at the same time; the best of eight, as a busy machine is slower."""
    return max(_rate(built, links) for _ in range(8))


def _rate(built: BuiltNetwork, links: Sequence[tuple[int, int]]) -> float:
    pairs = []
    for number, (source, target) in enumerate(links):
        enter_namespace(built.devices[target])
        with socket.create_server((built.network.address(target), 6000 + number)) as server:
            enter_namespace(built.devices[source])
            sender = socket.create_connection((built.network.address(target), 6000 + number))
            pairs.append((sender, server.accept()[0]))

    def receive(receiver: socket.socket) -> None:
        left = len(MESSAGE)
        while left:
            left -= len(receiver.recv(min(left, 65536)))

    threads = [threading.Thread(target=receive, args=(receiver,)) for _, receiver in pairs]
    threads += [threading.Thread(target=sender.sendall, args=(MESSAGE,)) for sender, _ in pairs]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(links) * len(MESSAGE) / (time.perf_counter() - began)


@needs_shaping
@undisturbed
def test_links_have_their_bandwidths() -> None:
    def work(built: BuiltNetwork) -> bool:
        # d0 to d1 inside a host; d1 to d2 has 40 MB/s, but the interface of its host 30; d2 to d0 a link of its own.
        measured = [rate(built, link) for link in ((0, 1), (1, 2), (2, 0))]
        return measured == pytest.approx([80e6, 30e6, 10e6], rel=0.1)

    inside(work)


@needs_shaping
@undisturbed
def test_an_interface_is_shared() -> None:
    def work(built: BuiltNetwork) -> bool:
        alone, together = rate(built, (0, 2)), rate(built, (0, 2), (1, 2))
        return [alone, together] == pytest.approx([30e6, 30e6], rel=0.1)

    inside(work)


@needs_shaping
@undisturbed
def test_a_link_changes_while_it_is_used() -> None:
    def work(built: BuiltNetwork) -> bool:
        built.change_link(0, 1, 0.25)
        return rate(built, (0, 1)) == pytest.approx(20e6, rel=0.1)

    inside(work)


@needs_shaping
def test_the_machine_keeps_its_own_network() -> None:
    before = interfaces()
    # The process is in a device's namespace after it has built all of it.
    inside(lambda _built: interfaces() == {"lo", "eth0"})
    assert interfaces() == before


def interfaces() -> set[str]:
    """Of the network that this process is in."""
    return {name for _, name in socket.if_nameindex()}


@needs_shaping
def test_who_may_not_make_namespaces_is_told_what_is_needed() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            become_root_inside()
            # For this namespace of users alone.
            Path("/proc/sys/user/max_net_namespaces").write_text("0")
            leave_host()
        except InputError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        what, hint = told.read().splitlines()
    assert what.endswith("network namespaces, which this process may not create (the limit on namespaces is reached)")
    assert "root" in hint
    assert hint.endswith("--no-shaping.")
