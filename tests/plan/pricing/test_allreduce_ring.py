"""Rings: every order tried for few devices; the price of an all-reduce by hand."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.plan.pricing.allreduce_ring import EXACT_RING, LOCAL_SEARCH_RING, InterfaceUse, reduce_ring
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

SLOW = Wire(bandwidth=1.0)


def cluster_of(matrix: list[list[float]], hosts: str | None = None, interface: float | None = None) -> Cluster:
    """Devices with these bandwidths; one host each letter."""
    size = len(matrix)
    names = hosts or "a" * size
    return Cluster(
        name="test",
        hosts=tuple(Host(name=name, inside=SLOW, interface_bandwidth=interface) for name in sorted(set(names))),
        devices=tuple(Device(name=f"d{place}", host=names[place], kind="k") for place in range(size)),
        between=SLOW,
        links=tuple(
            Link(source=f"d{i}", target=f"d{j}", wire=Wire(bandwidth=matrix[i][j], latency_s=0.25))
            for i in range(size)
            for j in range(size)
            if i != j
        ),
    )


def slowest(matrix: list[list[float]], order: tuple[int, ...]) -> float:
    return min(matrix[i][j] for i, j in pairwise((*order, order[0])))


BANDWIDTHS = st.sampled_from([1.0, 2.0, 4.0, 8.0]) | st.floats(0.5, 100.0)


@st.composite
def matrices(draw: st.DrawFn, most: int = 6) -> tuple[list[list[float]], str]:
    size = draw(st.sampled_from(range(2, most + 1)))
    matrix = draw(st.lists(st.lists(BANDWIDTHS, min_size=size, max_size=size), min_size=size, max_size=size))
    return matrix, draw(st.text("abc", min_size=size, max_size=size))


@reaches(improved=0.1, long=0.1, hosts=0.1)
@examples(300)
@given(matrices())
def test_no_order_is_better(problem: tuple[list[list[float]], str]) -> None:
    matrix, hosts = problem
    size = len(matrix)
    ring = reduce_ring(cluster_of(matrix, hosts), range(size), 12.0)
    assert sorted(ring.devices) == list(range(size))
    best = max(slowest(matrix, (0, *rest)) for rest in permutations(range(1, size)))
    assert slowest(matrix, ring.devices) == best
    assert ring.occupancy_s == pytest.approx(2 * (size - 1) / size * 12.0 / best, rel=1e-12)
    assert ring.links == list(pairwise((*ring.devices, ring.devices[0])))
    reach("improved", slowest(matrix, tuple(range(size))) < best)
    reach("long", size > 4)
    reach("hosts", len(set(hosts)) > 1)


@reaches(part=0.03, unsorted=0.1, improved=0.03)
@examples(40)
@given(matrices(), st.data())
def test_only_the_devices_asked_for(problem: tuple[list[list[float]], str], data: st.DataObject) -> None:
    matrix, hosts = problem
    cluster = cluster_of(matrix, hosts)
    size = data.draw(st.sampled_from(range(2, len(matrix) + 1)))
    chosen = data.draw(st.permutations(range(len(matrix))))[:size]
    ring = reduce_ring(cluster, chosen, 1.0)
    assert sorted(ring.devices) == sorted(chosen)
    assert ring == reduce_ring(cluster, sorted(chosen), 1.0), "the order in which devices are named does not matter"
    best = max(slowest(matrix, (chosen[0], *rest)) for rest in permutations(chosen[1:]))
    assert slowest(matrix, ring.devices) == best
    reach("part", len(chosen) < len(matrix))
    reach("unsorted", chosen != sorted(chosen))
    reach("improved", slowest(matrix, tuple(sorted(chosen))) < best)


def test_two_devices_by_hand() -> None:
    # 2 (2 - 1) / 2 x 12 = 12 bytes over the slower of the two links, of 3 bytes a second; 2 rounds of 0.25 seconds.
    ring = reduce_ring(cluster_of([[0, 3.0], [4.0, 0]]), [1, 0], 12.0)
    assert (ring.devices, ring.sent_bytes, ring.occupancy_s, ring.latency_s) == ((0, 1), 12.0, 4.0, 0.5)
    assert ring.interfaces == ()


def test_directions_differ() -> None:
    # 0 -> 1 -> 2 -> 0 has links of 8; the other way round has one of 1.
    matrix = [[0, 8.0, 1.0], [1.0, 0, 8.0], [8.0, 1.0, 0]]
    assert reduce_ring(cluster_of(matrix), [0, 1, 2], 12.0).devices == (0, 1, 2)
    turned = [list(row) for row in zip(*matrix, strict=True)]
    assert reduce_ring(cluster_of(turned), [0, 1, 2], 12.0).devices == (0, 2, 1)


def test_interfaces_by_hand() -> None:
    # Four devices, two hosts, links of 100: the ring 0 1 2 3 crosses once each way. Each member sends
    # 2 x 3 / 4 x 16 = 24 bytes; through an interface of 4 bytes a second that takes 6 seconds, in each direction.
    matrix = [[100.0] * 4 for _ in range(4)]
    ring = reduce_ring(cluster_of(matrix, "aabb", 4.0), range(4), 16.0)
    assert ring.devices == (0, 1, 2, 3)
    assert ring.sent_bytes == 24.0
    assert ring.occupancy_s == 6.0
    assert ring.latency_s == 6 * 0.25
    assert set(ring.interfaces) == {
        InterfaceUse(0, True, 6.0),
        InterfaceUse(1, True, 6.0),
        InterfaceUse(0, False, 6.0),
        InterfaceUse(1, False, 6.0),
    }


def test_an_interface_that_is_crossed_twice_is_shared() -> None:
    # Inside a host nothing but slow links: the best ring by links goes to the other host and back all the time, and
    # two members share each interface: 4 / 2 bytes a second for each.
    matrix = [[1.0 if i // 2 == j // 2 else 100.0 for j in range(4)] for i in range(4)]
    ring = reduce_ring(cluster_of(matrix, "aabb", 400.0), range(4), 16.0)
    assert [place // 2 for place in ring.devices] == [0, 1, 0, 1]
    assert ring.occupancy_s == 24.0 / 100.0
    assert {use.seconds for use in ring.interfaces} == {2 * 24.0 / 400.0}


def test_a_slow_interface_counts_when_the_order_is_chosen() -> None:
    # As above, but an interface of 1.5 bytes a second: going back and forth leaves each crossing 0.75, while the ring
    # 0 1 2 3, with its links of 1 inside the hosts, keeps 1 byte a second.
    matrix = [[1.0 if i // 2 == j // 2 else 100.0 for j in range(4)] for i in range(4)]
    ring = reduce_ring(cluster_of(matrix, "aabb", 1.5), range(4), 16.0)
    assert ring.occupancy_s == 24.0 / 1.0


def test_devices_of_a_host_stay_together_in_large_rings() -> None:
    # 64 devices on 8 hosts, named in a mixed order: fast inside, slow between. The bound is met without a search.
    size, hosts = LOCAL_SEARCH_RING + 16, 8
    cluster = Cluster(
        name="large",
        hosts=tuple(Host(name=f"h{place}", inside=Wire(bandwidth=100.0)) for place in range(hosts)),
        devices=tuple(Device(name=f"d{place}", host=f"h{place % hosts}", kind="k") for place in range(size)),
        between=Wire(bandwidth=5.0),
    )
    ring = reduce_ring(cluster, range(size), 1.0)
    crossings = sum(cluster.host_index[a] != cluster.host_index[b] for a, b in ring.links)
    assert crossings == hosts
    assert ring.occupancy_s == pytest.approx(2 * (size - 1) / size / 5.0)


@reaches(faster=0.5)
@examples(15)
@given(st.integers(EXACT_RING + 1, 14), st.randoms(use_true_random=False))
def test_local_search_is_no_worse_than_the_plain_order(size: int, random: object) -> None:
    shuffle = random.uniform  # type: ignore[attr-defined]
    matrix = [[shuffle(1.0, 10.0) for _ in range(size)] for _ in range(size)]
    ring = reduce_ring(cluster_of(matrix), range(size), 1.0)
    assert sorted(ring.devices) == list(range(size))
    plain = slowest(matrix, tuple(range(size)))
    assert slowest(matrix, ring.devices) >= plain
    reach("faster", slowest(matrix, ring.devices) > plain)
