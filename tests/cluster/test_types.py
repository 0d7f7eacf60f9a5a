import math

import pytest

from penstock.cluster.types import Cluster, Device, Host, Link, Wire

WIRE = Wire(bandwidth=1e9)


def cluster_of(*names: str, links: tuple[Link, ...] = ()) -> Cluster:
    devices = tuple(Device(name=name, host="h", kind="K") for name in names)
    return Cluster(name="c", hosts=(Host(name="h", inside=WIRE),), devices=devices, between=WIRE, links=links)


def test_links_are_compared_by_their_ends_and_not_by_their_text() -> None:
    one = Link(source="a -> b", target="c", wire=WIRE)
    other = Link(source="a", target="b -> c", wire=WIRE)
    assert cluster_of("a", "c", "a -> b", "b -> c", links=(one, other)).links == (one, other)
    with pytest.raises(ValueError, match="duplicate"):
        cluster_of("c", "a -> b", links=(one, one))


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan])
def test_a_bandwidth_is_above_zero(bandwidth: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Wire(bandwidth=bandwidth)
    with pytest.raises(ValueError, match="must be positive"):
        Host(name="h", inside=WIRE, interface_bandwidth=bandwidth)


@pytest.mark.parametrize("latency_s", [-1e-9, math.inf, math.nan])
def test_a_latency_is_finite_and_not_negative(latency_s: float) -> None:
    with pytest.raises(ValueError, match="latency"):
        Wire(bandwidth=1e9, latency_s=latency_s)


@pytest.mark.parametrize("speed", [0.0, -1.0, math.inf, math.nan])
def test_a_speed_is_finite_and_above_zero(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        Device(name="d", host="h", kind="K", speed=speed)


@pytest.mark.parametrize("memory_bytes", [-1, 2**60 + 1])
def test_memory_has_bounds(memory_bytes: int) -> None:
    with pytest.raises(ValueError, match="memory_bytes"):
        Device(name="d", host="h", kind="K", memory_bytes=memory_bytes)


def test_names_and_kinds_are_not_empty() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        cluster_of("")
    with pytest.raises(ValueError, match="needs a kind"):
        Device(name="d", host="h", kind="")
