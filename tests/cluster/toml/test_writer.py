import json
import math
import string
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.load import parse_spec
from penstock.cluster.toml.reader import parse_cluster, read_cluster
from penstock.cluster.toml.writer import write_cluster
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.errors import InputError
from tests.support.paths import CLUSTERS
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

EXAMPLES = sorted(CLUSTERS.glob("*.toml"))

NAMES = st.text(min_size=1, max_size=8) | st.text(alphabet=string.ascii_letters + "\"'\\.# []=\n\té🜁", min_size=1)
BANDWIDTHS = st.floats(min_value=0, exclude_min=True, allow_nan=False) | st.sampled_from(
    [1.25e9, 100e9, 37.5e6, 1e9 / 3, math.inf]
)
LATENCIES = st.floats(min_value=0, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 5e-6, 3e-5, 1e-3])
WIRES = st.builds(Wire, bandwidth=BANDWIDTHS, latency_s=LATENCIES)
MEMORIES = st.none() | st.integers(0, 2**60) | st.sampled_from([40 * 10**9, 24 * 2**30, 2**53 + 1])
SPEEDS = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)


def read_back(cluster: Cluster) -> Cluster:
    return parse_cluster(write_cluster(cluster), where="another.toml")


@st.composite
def links_among(draw: st.DrawFn, names: list[str]) -> tuple[Link, ...]:
    if len(names) < 2:
        return ()
    pairs = draw(st.lists(st.sampled_from(list(permutations(names, 2))), unique=True, max_size=6))
    return tuple(Link(source=source, target=target, wire=draw(WIRES)) for source, target in pairs)


@st.composite
def irregular_clusters(draw: st.DrawFn) -> Cluster:
    host_names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    device_names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    return Cluster(
        name=draw(st.text(max_size=10)),
        hosts=tuple(
            Host(name=name, inside=draw(WIRES), interface_bandwidth=draw(st.none() | BANDWIDTHS)) for name in host_names
        ),
        devices=tuple(
            Device(
                name=name,
                host=draw(st.sampled_from(host_names)),
                kind=draw(NAMES),
                memory_bytes=draw(MEMORIES),
                speed=draw(SPEEDS),
            )
            for name in device_names
        ),
        between=draw(WIRES),
        links=draw(links_among(device_names)),
        assumptions=tuple(draw(st.lists(st.text(max_size=10), max_size=3))),
    )


@st.composite
def regular_clusters(draw: st.DrawFn) -> Cluster:
    num_hosts, per_host = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    inside, interface = draw(WIRES), draw(st.none() | BANDWIDTHS)
    kind, memory_bytes, speed = draw(NAMES), draw(MEMORIES), draw(SPEEDS)
    devices = tuple(
        Device(
            name=f"h{host}.d{index}" if num_hosts > 1 else f"d{index}",
            host=f"h{host}",
            kind=kind,
            memory_bytes=memory_bytes,
            speed=speed,
        )
        for host in range(num_hosts)
        for index in range(per_host)
    )
    return Cluster(
        name=draw(st.text(max_size=10)),
        hosts=tuple(Host(name=f"h{host}", inside=inside, interface_bandwidth=interface) for host in range(num_hosts)),
        devices=devices,
        between=draw(WIRES),
        links=draw(links_among([device.name for device in devices])),
        assumptions=tuple(draw(st.lists(st.text(max_size=10), max_size=3))),
    )


def reach_options(cluster: Cluster) -> None:
    """What the short form of a single host without options does not have."""
    reach("links", cluster.links)
    reach("interface", any(host.interface_bandwidth is not None for host in cluster.hosts))
    reach("memory", any(device.memory_bytes is not None for device in cluster.devices))
    reach("assumptions", cluster.assumptions)
    reach("hosts", len(cluster.hosts) > 1)


@reaches(links=0.1, interface=0.1, memory=0.1, assumptions=0.1, hosts=0.1, quoted=0.1, unlimited=0.02)
@given(irregular_clusters())
@examples(150)
def test_any_cluster_reads_back_equal(cluster: Cluster) -> None:
    reach_options(cluster)
    reach("quoted", any(json.dumps(device.name) != f'"{device.name}"' for device in cluster.devices))
    wires = [cluster.between, *(host.inside for host in cluster.hosts), *(link.wire for link in cluster.links)]
    reach("unlimited", any(math.isinf(wire.bandwidth) for wire in wires))
    assert read_back(cluster) == cluster


@reaches(links=0.1, interface=0.1, memory=0.1, assumptions=0.1, hosts=0.1)
@given(regular_clusters())
@examples(100)
def test_a_regular_cluster_is_written_in_the_short_form_and_reads_back_equal(cluster: Cluster) -> None:
    reach_options(cluster)
    lines = write_cluster(cluster).split("\n")  # whole lines: a name may well contain "[[host]]"
    assert "[[host]]" not in lines
    assert "[[device]]" not in lines
    assert read_back(cluster) == cluster


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_read_back_equal(path: Path) -> None:
    cluster = read_cluster(path)
    assert read_back(cluster) == cluster
    assert read_back(cluster).digest == cluster.digest


def test_the_short_form() -> None:
    cluster = parse_spec("2 x 4 x V100-16 @ 100 GB/s, 30 us / 10 Gbit/s")
    assert write_cluster(cluster).splitlines()[:9] == [
        'name = "2 x 4 x V100-16 @ 100 GB/s, 30 us / 10 Gbit/s"',
        "hosts = 2",
        "devices_per_host = 4",
        'kind = "V100-16"',
        'memory = "16 GB"',
        "speed = 1.0",
        'inside = "100 GB/s, 30 us"',
        'between = "1.25 GB/s, 0 s"',
        "shared_interface = false",
    ]


def test_device_by_device() -> None:
    cluster = Cluster(
        name="n",
        hosts=(Host(name='a "b"', inside=Wire(bandwidth=math.inf), interface_bandwidth=2e9),),
        devices=(Device(name="p\n", host='a "b"', kind="K", memory_bytes=3 * 2**30, speed=0.1),),
        between=Wire(bandwidth=1e9 / 3, latency_s=1e-7 / 3),
    )
    assert write_cluster(cluster) == (
        'name = "n"\n'
        'between = "333333333.3333333 B/s, 3.3333333333333334e-08 s"\n'
        "\n[[host]]\n"
        'name = "a \\"b\\""\n'
        "devices = 0\n"
        'inside = "unlimited, 0 s"\n'
        'shared_interface = "2 GB/s"\n'
        "\n[[device]]\n"
        'name = "p\\u000a"\n'
        'host = "a \\"b\\""\n'
        'kind = "K"\n'
        'memory = "3 GiB"\n'
        "speed = 0.1\n"
    )


def test_names_that_cannot_be_encoded() -> None:
    cluster = parse_spec("1 x T4")
    with pytest.raises(InputError, match="cannot be encoded as UTF-8"):
        write_cluster(Cluster(name="\ud800", hosts=cluster.hosts, devices=cluster.devices, between=cluster.between))


def test_wires_that_one_host_does_not_need_are_omitted() -> None:
    devices = tuple(Device(name=f"gpu{number}", host="lab", kind="T4") for number in range(2))
    wires = {pair: Wire(bandwidth=rate) for pair, rate in (((0, 1), 3e9), ((1, 0), 4e9))}
    for cluster in (cluster_from_wires("two", devices, wires), cluster_from_wires("one", devices[:1], {})):
        text = write_cluster(cluster)
        assert "between" not in text
        assert ("inside" in text) == (len(cluster.devices) > 1)
        assert read_back(cluster) == cluster
    # Declared wires are kept.
    assert "between = " in write_cluster(parse_spec("1 x 2 x T4 @ 3 GB/s / 1 GB/s"))
