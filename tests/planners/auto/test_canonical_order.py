"""The canonical order of devices does not depend on how they are numbered or named."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster, Link, Wire
from penstock.planners.auto.canonical_order import canonical_order
from tests.support.reach import reach, reaches
from tests.support.strategies import clusters
from tests.support.thoroughness import examples


def _seen_from_outside(cluster: Cluster, order: list[int]) -> list[object]:
    """All that there is to say about the devices in that order, without names."""
    devices = [cluster.devices[device] for device in order]
    grid = np.ix_(order, order)
    off = ~np.eye(len(order), dtype=bool)
    hosts = cluster.host_index[order]
    return [
        [(device.kind, device.speed, device.memory_bytes) for device in devices],
        cluster.bandwidth[grid][off].tolist(),
        cluster.latency_s[grid][off].tolist(),
        (hosts[:, None] == hosts[None, :]).tolist(),
    ]


@reaches(reordered=0.05, hosts=0.1)
@examples(100)
@given(clusters())
def test_a_permutation_of_all_devices(cluster: Cluster) -> None:
    order = canonical_order(cluster)
    assert sorted(order) == list(range(cluster.num_devices))
    reach("reordered", order != sorted(order))
    reach("hosts", len({device.host for device in cluster.devices}) > 1)


def test_the_same_from_every_numbering() -> None:
    cluster = load_cluster("4 x X @ 1 GB/s")
    speeds = (1.0, 2.0, 1.5, 2.0)
    devices = tuple(
        msgspec.structs.replace(device, speed=speed) for device, speed in zip(cluster.devices, speeds, strict=True)
    )
    cluster = msgspec.structs.replace(cluster, devices=devices)
    first = _seen_from_outside(cluster, canonical_order(cluster))
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(4)
        other = msgspec.structs.replace(cluster, devices=tuple(devices[device] for device in order))
        assert _seen_from_outside(other, canonical_order(other)) == first


@pytest.mark.parametrize("odd", [0, 2])
def test_devices_that_differ_by_their_distance_only(odd: int) -> None:
    # A row of equal devices with fast links between neighbours; one is slower. Each round of refinement tells the
    # devices one step further from it apart, and those on its two sides by their distance from the ends.
    num = 8
    cluster = load_cluster(f"{num} x X @ 1 GB/s")
    names = [device.name for device in cluster.devices]
    devices = tuple(
        msgspec.structs.replace(device, speed=0.5 if index == odd else 1.0)
        for index, device in enumerate(cluster.devices)
    )
    links = tuple(
        Link(source=source, target=target, wire=Wire(bandwidth=5e9))
        for pair in pairwise(names)
        for source, target in (pair, pair[::-1])
    )
    row = msgspec.structs.replace(cluster, devices=devices, links=links)
    first = _seen_from_outside(row, canonical_order(row))
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(num)
        other = msgspec.structs.replace(row, devices=tuple(devices[device] for device in order))
        assert _seen_from_outside(other, canonical_order(other)) == first


def test_hosts_stay_together() -> None:
    cluster = load_cluster("3 x 2 x X @ 10 GB/s / 1 GB/s")
    mixed = msgspec.structs.replace(cluster, devices=tuple(cluster.devices[device] for device in (0, 2, 4, 1, 3, 5)))
    hosts = [mixed.devices[device].host for device in canonical_order(mixed)]
    assert hosts == ["h0", "h0", "h1", "h1", "h2", "h2"]
