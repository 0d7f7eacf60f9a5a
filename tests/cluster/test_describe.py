import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.cluster.describe import HostRow, LinkClass, bottleneck, cluster_rows, link_classes
from penstock.cluster.load import load_cluster, parse_spec
from penstock.cluster.toml.reader import read_cluster
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from tests.support.paths import CLUSTERS
from tests.support.undisturbed import undisturbed


def classes_by_matrix(cluster: Cluster) -> dict[tuple[float, float], int]:
    """The same, counted over the full matrices."""
    off_diagonal = ~np.eye(cluster.num_devices, dtype=bool)
    wires = np.stack([cluster.bandwidth[off_diagonal], cluster.latency_s[off_diagonal]], axis=1)
    distinct, numbers = np.unique(wires, axis=0, return_counts=True)
    return {(row[0], row[1]): number for row, number in zip(distinct.tolist(), numbers.tolist(), strict=True)}


@pytest.mark.parametrize("path", sorted(CLUSTERS.glob("*.toml")), ids=lambda path: path.stem)
def test_classes_agree_with_the_matrices(path: Path) -> None:
    cluster = read_cluster(path)
    classes = link_classes(cluster)
    assert {(item.wire.bandwidth, item.wire.latency_s): item.num_links for item in classes} == classes_by_matrix(
        cluster
    )
    for item in classes:
        index = cluster.index[item.source], cluster.index[item.target]
        assert index[0] != index[1]
        assert (cluster.bandwidth[index], cluster.latency_s[index]) == (item.wire.bandwidth, item.wire.latency_s)
    assert [item.wire.bandwidth for item in classes] == sorted(item.wire.bandwidth for item in classes)


def test_rows_of_the_lab() -> None:
    # gamma has one device, so no wire inside.
    alpha, beta, gamma = cluster_rows(read_cluster(CLUSTERS / "lab.toml"))
    gb = 1_000_000_000
    assert alpha == HostRow(
        hosts=("alpha",),
        num_devices=3,
        kinds=(("RTX-3090", 2), ("T4", 1)),
        memory_bytes=(24 * gb, 15 * gb),
        speeds=(1.0, 0.9),
        inside=tuple(
            Wire(bandwidth=rate, latency_s=late) for rate, late in ((3e9, 12e-6), (6e9, 12e-6), (12e9, 10e-6))
        ),
        interface_bandwidth=1.25e9,
    )
    assert (beta.label, beta.num_devices, beta.kinds) == ("beta", 2, (("RTX-4090", 2),))
    assert (gamma.inside, gamma.interface_bandwidth) == ((), None)


def test_identical_hosts_share_a_row() -> None:
    (row,) = cluster_rows(read_cluster(CLUSTERS / "large.toml"))
    assert row.label == "h0 .. h127 (128)"
    assert (len(row.hosts), row.num_devices, row.kinds) == (128, 8, (("H100", 8),))


def test_hosts_are_named_one_by_one_unless_they_are_numbered_in_turn() -> None:
    def label(*names: str) -> str:
        hosts = tuple(Host(name=name, inside=Wire(bandwidth=1e9)) for name in names)
        devices = tuple(Device(name=f"{name}.d0", host=name, kind="T4") for name in names)
        (row,) = cluster_rows(Cluster(name="c", hosts=hosts, devices=devices, between=Wire(bandwidth=1e9)))
        return row.label

    assert label("node01", "node03") == "node01, node03"
    assert label("node08", "node09", "node10") == "node08 .. node10 (3)"
    assert label("n1", "n2", "n4", "n5") == "n1, n2, n4 and 1 more"
    assert label("r1n7", "r2n7") == "r1n7, r2n7"
    assert label("left", "right") == "left, right"


def test_hosts_with_different_links_have_separate_rows() -> None:
    cluster = parse_spec("2 x 3 x T4 @ 10 GB/s / 1 GB/s")
    fast = Wire(bandwidth=80e9)
    every = [Link(source=f"h1.d{a}", target=f"h1.d{b}", wire=fast) for a in range(3) for b in range(3) if a != b]
    first, second = cluster_rows(msgspec.structs.replace(cluster, links=tuple(every[:1])))
    assert (first.label, first.inside) == ("h0", (Wire(bandwidth=10e9),))
    assert (second.label, second.inside) == ("h1", (Wire(bandwidth=10e9), fast))
    # Where every pair has a link, the default is not listed.
    assert cluster_rows(msgspec.structs.replace(cluster, links=tuple(every)))[1].inside == (fast,)


def test_classes_of_paired_devices() -> None:
    # 4 x 3 = 12 directed links, of which 2 x 2 are bridges.
    cluster = read_cluster(CLUSTERS / "paired.toml")
    assert link_classes(cluster) == [
        LinkClass(wire=Wire(bandwidth=11e9, latency_s=10e-6), num_links=8, source="d0", target="d2"),
        LinkClass(wire=Wire(bandwidth=50e9, latency_s=4e-6), num_links=4, source="d0", target="d1"),
    ]


def test_an_example_is_the_first_pair() -> None:
    # Three hosts of two devices: 2 directed links inside each, and 6 x 4 between hosts.
    cluster = parse_spec("3 x 2 x T4 @ 10 GB/s / 1 GB/s")
    inside, between = Wire(bandwidth=10e9), Wire(bandwidth=1e9)
    assert link_classes(cluster) == [
        LinkClass(wire=between, num_links=24, source="h0.d0", target="h1.d0"),
        LinkClass(wire=inside, num_links=6, source="h0.d0", target="h0.d1"),
    ]
    # Where the first pair has a link of its own, the next one is the example.
    own = Wire(bandwidth=2e9)
    links = (Link(source="h0.d0", target="h0.d1", wire=own), Link(source="h0.d0", target="h1.d0", wire=own))
    assert link_classes(msgspec.structs.replace(cluster, links=links)) == [
        LinkClass(wire=between, num_links=23, source="h0.d0", target="h1.d1"),
        LinkClass(wire=own, num_links=2, source="h0.d0", target="h0.d1"),
        LinkClass(wire=inside, num_links=5, source="h0.d1", target="h0.d0"),
    ]


def test_the_bottleneck_is_the_slowest_link() -> None:
    # Two hosts of two: 2 x 2 pairs across, in two directions.
    slowest = bottleneck(parse_spec("2 x 2 x T4 @ 10 GB/s / 1 GB/s"))
    assert slowest == LinkClass(wire=Wire(bandwidth=1e9), num_links=8, source="h0.d0", target="h1.d0")
    assert bottleneck(parse_spec("1 x T4")) is None


def test_of_equal_bandwidths_the_longer_latency_is_slower() -> None:
    slowest = bottleneck(parse_spec("2 x 2 x T4 @ 1 GB/s, 1 us / 1 GB/s, 9 us"))
    assert slowest is not None
    assert slowest.wire.latency_s == 9e-6


@undisturbed
def test_describing_is_quick() -> None:
    cluster = load_cluster("8192 x 8 x H100 @ 450 GB/s / 50 GB/s")
    start = time.perf_counter()
    classes, rows = link_classes(cluster), cluster_rows(cluster)
    assert time.perf_counter() - start < 1.0
    # 8,192 hosts with 8 x 7 pairs each; 65,536 x 65,528 pairs across.
    assert [item.num_links for item in classes] == [4_294_443_008, 458_752]
    assert len(rows) == 1
