"""What is made twice as fast for a link: the link itself inside a host, else the interfaces or the network."""

import msgspec
import pytest

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.report.analysis.what_if_changes import _faster_inside, _faster_link, _join


def cluster_of(interfaces: tuple[float | None, float | None], *links: Link) -> Cluster:
    """Two hosts of two devices: 8 B/s inside, 4 B/s between, latencies of 6 s and 2 s."""
    return Cluster(
        name="c",
        hosts=tuple(
            Host(name=name, inside=Wire(bandwidth=8.0, latency_s=6.0), interface_bandwidth=rate)
            for name, rate in zip(("a", "b"), interfaces, strict=True)
        ),
        devices=tuple(Device(name=f"{host}{number}", host=host, kind="k") for host in "ab" for number in range(2)),
        between=Wire(bandwidth=4.0, latency_s=2.0),
        links=links,
    )


@pytest.mark.parametrize("interfaces", [(None, None), (4.5, None), (None, 4.5), (5.0, 9.0)])
def test_the_network_where_no_interface_is_slower(interfaces: tuple[float | None, float | None]) -> None:
    own = [
        Link(source="a0", target="b1", wire=Wire(bandwidth=3.0, latency_s=1.0)),
        Link(source="a0", target="a1", wire=Wire(bandwidth=7.0, latency_s=1.0)),
    ]
    cluster = cluster_of(interfaces, *own)
    (change,) = _faster_link(cluster, 1, 2)
    assert change.text == "a network twice as fast between hosts (8 B/s)"
    assert change.cluster.between == Wire(bandwidth=8.0, latency_s=1.0)
    assert change.cluster.links == (
        Link(source="a0", target="b1", wire=Wire(bandwidth=6.0, latency_s=0.5)),
        own[1],
    )
    rates = [host.interface_bandwidth for host in change.cluster.hosts]
    assert rates == [None if rate is None else 2 * rate for rate in interfaces]
    assert [host.inside for host in change.cluster.hosts] == [host.inside for host in cluster.hosts]


@pytest.mark.parametrize("interfaces", [(4.0, None), (None, 4.0), (3.0, 9.0), (9.0, 3.0)])
def test_the_interfaces_where_one_is_as_slow(interfaces: tuple[float | None, float | None]) -> None:
    cluster = cluster_of(interfaces)
    (change,) = _faster_link(cluster, 3, 0)
    assert change.text == "network interfaces twice as fast on a and b"
    rates = [host.interface_bandwidth for host in change.cluster.hosts]
    assert rates == [None if rate is None else 2 * rate for rate in interfaces]
    hosts = tuple(
        msgspec.structs.replace(host, interface_bandwidth=old.interface_bandwidth)
        for host, old in zip(change.cluster.hosts, cluster.hosts, strict=True)
    )
    assert msgspec.structs.replace(change.cluster, hosts=hosts) == cluster


def test_one_link_inside_a_host() -> None:
    other = Link(source="a1", target="a0", wire=Wire(bandwidth=5.0))
    cluster = cluster_of((None, None), other, Link(source="a0", target="a1", wire=Wire(bandwidth=3.0, latency_s=4.0)))
    (change,) = _faster_link(cluster, 0, 1)
    assert change.text == "a link twice as fast from a0 to a1 (6 B/s)"
    assert change.cluster.links == (other, Link(source="a0", target="a1", wire=Wire(bandwidth=6.0, latency_s=2.0)))
    (change,) = _faster_link(cluster, 2, 3)
    assert change.cluster.links[-1] == Link(source="b0", target="b1", wire=Wire(bandwidth=16.0, latency_s=3.0))


def test_all_links_inside_one_host() -> None:
    links = [
        Link(source=source, target=target, wire=Wire(bandwidth=3.0, latency_s=4.0))
        for source, target in (("a0", "a1"), ("b0", "b1"), ("a0", "b0"))
    ]
    change = _faster_inside(cluster_of((1.0, 1.0), *links), "b")
    assert change.text == "links inside b twice as fast"
    fast = Link(source="b0", target="b1", wire=Wire(bandwidth=6.0, latency_s=2.0))
    assert change.cluster.links == (links[0], fast, links[2])
    assert [host.inside.bandwidth for host in change.cluster.hosts] == [8.0, 16.0]


def test_names_that_are_joined() -> None:
    assert _join(["a"]) == "a"
    assert _join(["a", "b", "c"]) == "a and b and c"
    assert _join(["a", "b", "c", "d"]) == "a and the 3 other replicas of its stages"
