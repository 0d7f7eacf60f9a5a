"""What ip and tc are told, for a cluster that can be checked by hand."""

import re

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.emulation.network.topology import FRAME, PAYLOAD, Network

CLUSTER = Cluster(
    name="two hosts",
    hosts=(
        Host(name="a", inside=Wire(bandwidth=100e6), interface_bandwidth=30e6),
        Host(name="b", inside=Wire(bandwidth=100e6)),
    ),
    devices=tuple(Device(name=f"d{number}", host="aaab"[number], kind="X") for number in range(4)),
    between=Wire(bandwidth=20e6),
    links=(Link(source="d0", target="d3", wire=Wire(bandwidth=5e6)),),
)
# d1 is not in use.
NETWORK = Network(CLUSTER, ("d0", "d2", "d3"), 10.0)


def rates(lines: list[str]) -> dict[str, float]:
    """Bytes a second of contents by class."""
    found = {}
    for line in lines:
        match = re.match(r"class \w+ dev \w+ parent 1: classid 1:(\w+) htb rate (\d+)bit ceil (\d+)bit", line)
        if match:
            assert match[2] == match[3]
            found[match[1]] = int(match[2]) / 8 * PAYLOAD / FRAME
    return found


def near(one: dict[str, float], other: dict[str, float]) -> bool:
    return one.keys() == other.keys() and all(abs(one[key] / other[key] - 1) < 1e-6 for key in one)


def test_every_link_has_its_bandwidth_slowed_down() -> None:
    # Rank 0 is d0, rank 1 is d2 on the same host, rank 2 is d3.
    assert near(rates(NETWORK.device_shaping(0)), {"11": 10e6, "12": 0.5e6})
    assert near(rates(NETWORK.device_shaping(2)), {"10": 2e6, "11": 2e6})
    filters = [line for line in NETWORK.device_shaping(0) if "match ip dst" in line]
    assert [line.partition("dst ")[2] for line in filters] == ["10.77.0.2/32 flowid 1:11", "10.77.0.3/32 flowid 1:12"]


def test_a_shared_interface_is_one_class_in_each_direction() -> None:
    assert near(rates(NETWORK.uplink_shaping("a", outgoing=True)), {"10": 3e6})
    inward = NETWORK.uplink_shaping("a", outgoing=False)
    assert near(rates(inward), {"10": 3e6})
    assert all(" dev host0 " in line for line in inward)
    assert NETWORK.uplink_shaping("b", outgoing=True) == []


def test_a_link_can_change() -> None:
    assert near(rates([NETWORK.link_change(0, 2, 0.1)]), {"12": 0.05e6})


def test_hosts_and_devices_in_use_are_joined() -> None:
    assert NETWORK.hosts == ("a", "b")
    switch = NETWORK.in_switch({"a": 7, "b": 8})
    assert [line.split()[2] for line in switch if "type veth" in line] == ["host0", "host1"]
    assert any("peer name uplink" in line and line.endswith("netns /proc/self/fd/8") for line in switch)
    inside = NETWORK.in_host("a", {"d0": 3, "d2": 4, "d3": 5})
    assert [line.split()[-1] for line in inside if "type veth" in line] == ["/proc/self/fd/3", "/proc/self/fd/4"]
    assert "addr add 10.77.0.2/16 dev eth0" in NETWORK.in_device(1)


def test_many_devices_have_addresses_of_their_own() -> None:
    assert len({NETWORK.address(rank) for rank in range(1000)}) == 1000
