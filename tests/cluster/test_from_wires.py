"""Clusters from the wire of every pair."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.types import Device, Wire
from tests.support.reach import reach, reaches

WIRES = [Wire(bandwidth=rate, latency_s=late) for rate in (1e9, 2e9) for late in (0.0, 1e-5)]


@reaches(hosts=0.2, wires=0.2, interface=0.2)
@given(st.data(), st.integers(1, 7))
def test_every_pair_has_its_wire(data: st.DataObject, number: int) -> None:
    hosts = data.draw(st.lists(st.sampled_from("abc"), min_size=number, max_size=number))
    devices = [Device(name=f"d{index}", host=host, kind="x") for index, host in enumerate(hosts)]
    pairs = [(a, b) for a in range(number) for b in range(number) if a != b]
    wires = {pair: data.draw(st.sampled_from(WIRES)) for pair in pairs}
    cluster = cluster_from_wires("c", devices, wires, interfaces={"a": 5e8})
    assert cluster.devices == tuple(devices)
    for (a, b), wire in wires.items():
        assert (cluster.bandwidth[a, b], cluster.latency_s[a, b]) == (wire.bandwidth, wire.latency_s)
    assert {host.name: host.interface_bandwidth for host in cluster.hosts} == {
        host: 5e8 if host == "a" else None for host in hosts
    }
    # The most common wire needs no link.
    assert len(cluster.links) <= len(pairs) * 3 / 4
    reach("hosts", len(set(hosts)) > 1)
    reach("wires", len(set(wires.values())) > 1 and cluster.links)
    reach("interface", "a" in hosts)
