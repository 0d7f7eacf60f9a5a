"""The network of an emulation: namespaces, addresses, and the commands of ip and tc that create and shape it.

    switch ──┬── uplink of host a ── bridge ──┬── eth0 of a's first device
             │                                └── eth0 of a's second device
             └── uplink of host b ── bridge ───── eth0 of b's only device

Every host is a namespace with a bridge, and every device behind it is a namespace too, so that links inside a host are
shaped. A directed link is a class of the sending device's htb. A network interface that the devices of a host share is
one class of the uplink in each direction. Acknowledgements bypass all queues: in a real network they would not wait
behind data of the other direction either.

This module only generates text; `namespaces.py` runs the commands.
"""

from dataclasses import dataclass
from functools import cached_property

from penstock.cluster import Cluster

MTU = 9000
PAYLOAD = MTU - 52
"""Payload of a frame, without the headers of IP and TCP."""
FRAME = MTU + 14
"""Bytes that the shaper counts for a full frame."""
BURST_S = 1e-3
"""Time of a link that may be made up for after it was idle, or when the shaper wakes up late."""
MAX_QUEUE = 20_000
"""In frames. It exceeds the buffers of all sockets, so that no frame is ever dropped."""
MAX_RATE = 30e9
"""Bytes per second; no link of this machine is faster."""
UNSHAPED = 2
"""The class of frames that are not shaped."""
FIRST_CLASS = 16
MAX_DEVICES = 1000

SETTINGS = {
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_wmem": "4096 65536 1048576",
    "ipv4/tcp_rmem": "4096 131072 2097152",
    "ipv6/conf/all/disable_ipv6": "1",
}
"""Settings of every namespace. Buffers are small, so that a message does not wait long behind a full socket."""


@dataclass(frozen=True)
class Network:
    """The devices in use, and the bandwidths between them in time of this machine."""

    cluster: Cluster
    devices: tuple[str, ...]
    slow_down: float

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the devices in use."""
        return tuple(dict.fromkeys(self._host_of(device) for device in self.devices))

    def _host_of(self, device: str) -> str:
        return self.cluster.devices[self.cluster.index[device]].host

    def address(self, rank: int) -> str:
        """Return the IP address of a device."""
        return f"10.77.{rank // 250}.{rank % 250 + 1}"

    def rate(self, source: int, target: int) -> float:
        """Return the bytes per second between two ranks, in time of this machine."""
        ends = (self.cluster.index[self.devices[rank]] for rank in (source, target))
        return min(float(self.cluster.bandwidth[tuple(ends)]) / self.slow_down, MAX_RATE)

    def interface_rate(self, host: str) -> float | None:
        """Return the bytes per second of a host's shared interface, in time of this machine; None without one."""
        bandwidth = next(item for item in self.cluster.hosts if item.name == host).interface_bandwidth
        return None if bandwidth is None else min(bandwidth / self.slow_down, MAX_RATE)

    def in_switch(self, host_files: dict[str, int]) -> list[str]:
        """Return the commands of ip between the hosts. Namespaces are given as open files."""
        lines = ["link set lo up", *_bridge("switch")]
        for number, host in enumerate(self.hosts):
            lines += _pair(f"host{number}", "uplink", host_files[host], "switch")
        return lines

    def in_host(self, host: str, device_files: dict[str, int]) -> list[str]:
        """Return the commands of ip inside a host."""
        lines = ["link set lo up", *_bridge("bridge"), "link set uplink master bridge", "link set uplink up"]
        for rank, device in enumerate(self.devices):
            if self._host_of(device) == host:
                lines += _pair(f"port{rank}", "eth0", device_files[device], "bridge")
        return lines

    def in_device(self, rank: int) -> list[str]:
        """Return the commands of ip inside a device."""
        return ["link set lo up", f"addr add {self.address(rank)}/16 dev eth0", "link set eth0 up"]

    def device_shaping(self, rank: int) -> list[str]:
        """Return the commands of tc inside a device: a class for each other device."""
        lines = _shaper("eth0")
        for peer in range(len(self.devices)):
            if peer != rank:
                to = f"match ip dst {self.address(peer)}/32"
                lines += _shaped("eth0", FIRST_CLASS + peer, self.rate(rank, peer), to)
        return lines

    def link_change(self, source: int, target: int, factor: float) -> str:
        """Return the command of tc inside the sending device that multiplies the bandwidth of a link."""
        return _class("change", "eth0", FIRST_CLASS + target, self.rate(source, target) * factor)

    def uplink_shaping(self, host: str, *, outgoing: bool) -> list[str]:
        """Return the commands of tc at the host's or the switch's end of an uplink; none without a shared interface."""
        rate = self.interface_rate(host)
        if rate is None:
            return []
        name = "uplink" if outgoing else f"host{self.hosts.index(host)}"
        return [*_shaper(name), *_shaped(name, FIRST_CLASS, rate, "match u32 0 0 at 0")]


def _bridge(name: str) -> list[str]:
    return [f"link add {name} mtu {MTU} type bridge forward_delay 0", f"link set {name} up"]


def _pair(local: str, remote: str, namespace: int, bridge: str) -> list[str]:
    """Connect another namespace to a bridge of this one."""
    peer = f"peer name {remote} mtu {MTU} netns /proc/self/fd/{namespace}"
    return [f"link add {local} mtu {MTU} type veth {peer}", f"link set {local} master {bridge}", f"link set {local} up"]


def _shaper(device: str) -> list[str]:
    """Add an htb without classes yet. Frames too short for data are not shaped."""
    return [
        f"qdisc add dev {device} root handle 1: htb default {UNSHAPED}",
        f"class add dev {device} parent 1: classid 1:{UNSHAPED} htb rate {_bits(MAX_RATE)} quantum {FRAME}",
        f"filter add dev {device} parent 1: protocol ip prio 1 u32 match u16 0 0xffc0 at 2 flowid 1:{UNSHAPED}",
    ]


def _shaped(device: str, number: int, rate: float, match: str) -> list[str]:
    return [
        _class("add", device, number, rate),
        f"qdisc add dev {device} parent 1:{number:x} pfifo limit {MAX_QUEUE}",
        f"filter add dev {device} parent 1: protocol ip prio 2 u32 {match} flowid 1:{number:x}",
    ]


def _class(verb: str, device: str, number: int, rate: float) -> str:
    # The rate is that of the payload. Headers come on top.
    counted = rate * FRAME / PAYLOAD
    burst = max(FRAME, round(counted * BURST_S))
    speed = f"rate {_bits(counted)} ceil {_bits(counted)} burst {burst} cburst {burst} quantum {FRAME}"
    return f"class {verb} dev {device} parent 1: classid 1:{number:x} htb {speed}"


def _bits(rate: float) -> str:
    return f"{max(8, round(8 * rate))}bit"
