"""The network of an emulation: namespaces, addresses, and the commands of ip and tc that make and shape it.

    switch ──┬── uplink of host a ── bridge ──┬── eth0 of a's first device
             │                                └── eth0 of a's second device
             └── uplink of host b ── bridge ───── eth0 of b's only device

Every host is a namespace with a bridge, every device a namespace of its own behind it, so that links inside a host are
shaped too. A directed link is a class of its own in the sending device's htb. A network interface that the devices of
a host share is one class on the uplink, in either direction. Frames that only acknowledge pass by all queues: in a
real network they would not wait behind data of the other direction either.

Everything here is text; `building.py` carries it out.
"""

from dataclasses import dataclass
from functools import cached_property

from penstock.cluster import Cluster

MTU = 9000
PAYLOAD = MTU - 52
"""Of a frame: without the headers of IP and TCP. Ethernet's own are not counted by the shaper."""
FRAME = MTU + 14
"""What the shaper counts for a full frame."""
BURST_S = 1e-3
"""So much of a link's time may be made up for after it was idle, or when the shaper wakes up late."""
LONGEST_QUEUE = 20_000
"""In frames: more than all sockets' buffers, so that nothing is ever lost."""
FASTEST = 30e9
"""Bytes a second; the shaper counts bits in 64 bits, but nothing here is that fast anyway."""
DIRECT = 2
"""The class of what is not shaped."""
FIRST_CLASS = 16
MOST_DEVICES = 1000

SETTINGS = {
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv4/tcp_wmem": "4096 65536 1048576",
    "ipv4/tcp_rmem": "4096 131072 2097152",
    "ipv6/conf/all/disable_ipv6": "1",
}
"""Of every namespace. The buffers are small, so that a message does not wait long behind what a socket holds."""


@dataclass(frozen=True)
class Network:
    """The devices in use, with the bandwidths between them as they are to be here."""

    cluster: Cluster
    devices: tuple[str, ...]
    slow_down: float

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of devices in use."""
        return tuple(dict.fromkeys(self._host_of(device) for device in self.devices))

    def _host_of(self, device: str) -> str:
        return self.cluster.devices[self.cluster.index[device]].host

    def address(self, rank: int) -> str:
        """Of a device."""
        return f"10.77.{rank // 250}.{rank % 250 + 1}"

    def rate(self, source: int, target: int) -> float:
        """Bytes a second between two ranks here."""
        ends = (self.cluster.index[self.devices[rank]] for rank in (source, target))
        return min(float(self.cluster.bandwidth[tuple(ends)]) / self.slow_down, FASTEST)

    def interface_rate(self, host: str) -> float | None:
        """Bytes a second of a host's shared interface here."""
        found = next(item for item in self.cluster.hosts if item.name == host).interface_bandwidth
        return None if found is None else min(found / self.slow_down, FASTEST)

    def in_switch(self, host_files: dict[str, int]) -> list[str]:
        """For ip, between the hosts; namespaces are named by the numbers of their open files."""
        lines = ["link set lo up", *_bridge("switch")]
        for number, host in enumerate(self.hosts):
            lines += _pair(f"host{number}", "uplink", host_files[host], "switch")
        return lines

    def in_host(self, host: str, device_files: dict[str, int]) -> list[str]:
        """For ip, inside a host."""
        lines = ["link set lo up", *_bridge("bridge"), "link set uplink master bridge", "link set uplink up"]
        for rank, device in enumerate(self.devices):
            if self._host_of(device) == host:
                lines += _pair(f"port{rank}", "eth0", device_files[device], "bridge")
        return lines

    def in_device(self, rank: int) -> list[str]:
        """For ip, at a device."""
        return ["link set lo up", f"addr add {self.address(rank)}/16 dev eth0", "link set eth0 up"]

    def device_shaping(self, rank: int) -> list[str]:
        """For tc, at a device: a class for each other device."""
        lines = _shaper("eth0")
        for peer in range(len(self.devices)):
            if peer != rank:
                to = f"match ip dst {self.address(peer)}/32"
                lines += _shaped("eth0", FIRST_CLASS + peer, self.rate(rank, peer), to)
        return lines

    def link_change(self, source: int, target: int, factor: float) -> str:
        """For tc, at the sending device: a link has so much of its bandwidth from now on."""
        return _class("change", "eth0", FIRST_CLASS + target, self.rate(source, target) * factor)

    def uplink_shaping(self, host: str, *, outgoing: bool) -> list[str]:
        """For tc, at a host's end of its uplink, or at the switch's end; nothing where devices share no interface."""
        rate = self.interface_rate(host)
        if rate is None:
            return []
        name = "uplink" if outgoing else f"host{self.hosts.index(host)}"
        return [*_shaper(name), *_shaped(name, FIRST_CLASS, rate, "match u32 0 0 at 0")]


def _bridge(name: str) -> list[str]:
    return [f"link add {name} mtu {MTU} type bridge forward_delay 0", f"link set {name} up"]


def _pair(here: str, there: str, namespace: int, bridge: str) -> list[str]:
    """A cable into another namespace, plugged into the bridge at this end."""
    other = f"peer name {there} mtu {MTU} netns /proc/self/fd/{namespace}"
    return [f"link add {here} mtu {MTU} type veth {other}", f"link set {here} master {bridge}", f"link set {here} up"]


def _shaper(device: str) -> list[str]:
    """An htb where frames too short for data are not shaped, and nothing else is yet."""
    return [
        f"qdisc add dev {device} root handle 1: htb default {DIRECT}",
        f"class add dev {device} parent 1: classid 1:{DIRECT} htb rate {_bits(FASTEST)} quantum {FRAME}",
        f"filter add dev {device} parent 1: protocol ip prio 1 u32 match u16 0 0xffc0 at 2 flowid 1:{DIRECT}",
    ]


def _shaped(device: str, number: int, rate: float, match: str) -> list[str]:
    return [
        _class("add", device, number, rate),
        f"qdisc add dev {device} parent 1:{number:x} pfifo limit {LONGEST_QUEUE}",
        f"filter add dev {device} parent 1: protocol ip prio 2 u32 {match} flowid 1:{number:x}",
    ]


def _class(verb: str, device: str, number: int, rate: float) -> str:
    # What is to pass is the contents; headers come on top.
    counted = rate * FRAME / PAYLOAD
    burst = max(FRAME, round(counted * BURST_S))
    speed = f"rate {_bits(counted)} ceil {_bits(counted)} burst {burst} cburst {burst} quantum {FRAME}"
    return f"class {verb} dev {device} parent 1: classid 1:{number:x} htb {speed}"


def _bits(rate: float) -> str:
    return f"{max(8, round(8 * rate))}bit"
