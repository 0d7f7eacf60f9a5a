"""A cluster of network namespaces, one per device, with links that tc shapes.

    device namespace ── bridge of its host ── uplink ── bridge of the switch

Each device shapes its outgoing links by destination, to the cluster's bandwidths. The uplink of a host with a shared
interface is shaped on both sides. Nothing outside these namespaces changes, and the `with` block removes them. Ranks
use a fixed port, which no other process can take, as it is in a namespace of their own.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from penstock.cluster import Cluster

MTU = 9000
"""Large, so that headers take less than 1 % of the bandwidth."""
BURST_S = 0.002
MIN_BURST = 20_000


def can_create_namespaces() -> bool:
    """Whether this process may create and shape namespaces."""
    name = f"pb{os.getpid()}t"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "-n", name, "link", "add", "x", "type", "veth", "peer", "name", "y")
        _run("tc", "-n", name, "qdisc", "add", "dev", "x", "root", "handle", "1:", "htb")
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return True


@contextmanager
def create_namespaces(cluster: Cluster) -> Iterator[list[str]]:
    """Create the namespaces of a cluster; yields those of the devices, in the cluster's order."""
    prefix = f"pb{os.getpid()}"
    switch = f"{prefix}s"
    hosts = {host.name: f"{prefix}h{index}" for index, host in enumerate(cluster.hosts)}
    devices = [f"{prefix}d{index}" for index in range(cluster.num_devices)]
    every = [*devices, *hosts.values(), switch]
    try:
        for name in every:
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        for name in (*hosts.values(), switch):
            _run("ip", "-n", name, "link", "add", "br0", "type", "bridge")
            _run("ip", "-n", name, "link", "set", "br0", "up", "mtu", str(MTU))
        for host in cluster.hosts:
            inner = hosts[host.name]
            _join(inner, "up0", switch, inner)
            if host.interface_bandwidth is not None:
                for name, port in ((inner, "up0"), (switch, inner)):
                    _shape(name, port, {}, host.interface_bandwidth)
        for index, device in enumerate(cluster.devices):
            _join(devices[index], "eth0", hosts[device.host], f"p{index}", enslave_first=False)
            _run("ip", "-n", devices[index], "addr", "add", f"{address(index)}/16", "dev", "eth0")
            others = {other: cluster.bandwidth[index, other] for other in range(cluster.num_devices) if other != index}
            _shape(devices[index], "eth0", others, None)
        yield devices
    finally:
        for name in every:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def address(index: int) -> str:
    """The address of a device."""
    return f"10.88.{index // 200}.{index % 200 + 1}"


def _join(one: str, port: str, other: str, other_port: str, *, enslave_first: bool = True) -> None:
    """Connect a port of one namespace to the bridge of another, and to the bridge of its own unless told otherwise."""
    _run("ip", "-n", one, "link", "add", port, "type", "veth", "peer", "name", other_port, "netns", other)
    for name, end, to_bridge in ((one, port, enslave_first), (other, other_port, True)):
        _run("ip", "-n", name, "link", "set", end, "mtu", str(MTU), *(("master", "br0") if to_bridge else ()), "up")


def _shape(name: str, port: str, rates: Mapping[int, float], total: float | None) -> None:
    """Limit the outgoing bandwidth of a port, in total and by destination."""
    tc = ("tc", "-n", name)
    _run(*tc, "qdisc", "add", "dev", port, "root", "handle", "1:", "htb", "default", "1")
    _class(name, port, "1:", "1:1", total or 10e9)
    for index, rate in rates.items():
        _class(name, port, "1:", f"1:{index + 16:x}", float(rate))
        match = ("match", "ip", "dst", f"{address(index)}/32", "flowid", f"1:{index + 16:x}")
        _run(*tc, "filter", "add", "dev", port, "parent", "1:", "protocol", "ip", "prio", "1", "u32", *match)


def _class(name: str, port: str, parent: str, own: str, rate: float) -> None:
    burst = str(max(MIN_BURST, int(rate * BURST_S)))
    bits = f"{int(rate * 8)}bit"
    words = ("rate", bits, "ceil", bits, "burst", burst, "cburst", burst, "quantum", "60000")
    _run("tc", "-n", name, "class", "add", "dev", port, "parent", parent, "classid", own, "htb", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def run_probe(command: Sequence[str], cluster: Cluster, namespaces: Sequence[str], limit_s: float) -> list[int | None]:
    """Run a command as the ranks of the cluster, each in its namespace; returns exit codes, None for a timeout."""
    started = []
    for index, (device, name) in enumerate(zip(cluster.devices, namespaces, strict=True)):
        environment = {
            **os.environ,
            "RANK": str(index),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(cluster.num_devices),
            "MASTER_ADDR": address(0),
            "MASTER_PORT": "29577",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "PENSTOCK_HOST": device.host,
        }
        words = ["ip", "netns", "exec", name, *command]
        started.append(subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        end_s = time.monotonic() + limit_s
        while any(process.poll() is None for process in started) and time.monotonic() < end_s:
            time.sleep(0.1)
        return [process.poll() for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
