"""The order of devices: minimum cuts against brute force, hosts together, the same order for the same cluster."""

from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.planners.methods.spp import device_order
from penstock.planners.methods.spp.device_order import MAX_NODES, link_weights, minimum_cut, order_devices
from tests.support.reach import reach, reaches
from tests.support.strategies import clusters, sizes_up_to
from tests.support.thoroughness import examples


def cluster_of(
    hosts: Sequence[str],
    links: dict[tuple[int, int], float] | None = None,
    *,
    inside: float = 10.0,
    between: float = 1.0,
    interface: float | None = None,
) -> Cluster:
    """A device on each of these hosts; links in both directions."""
    pairs = {**(links or {}), **{(b, a): value for (a, b), value in (links or {}).items()}}
    return Cluster(
        name="small",
        hosts=tuple(
            Host(name=name, inside=Wire(bandwidth=inside), interface_bandwidth=interface) for name in sorted(set(hosts))
        ),
        devices=tuple(Device(name=f"d{index}", host=host, kind="k") for index, host in enumerate(hosts)),
        between=Wire(bandwidth=between),
        links=tuple(
            Link(source=f"d{a}", target=f"d{b}", wire=Wire(bandwidth=value)) for (a, b), value in pairs.items()
        ),
    )


def num_changes(cluster: Cluster, order: Sequence[int]) -> int:
    """How often the host changes along the order."""
    return int((np.diff(cluster.host_index[list(order)]) != 0).sum())


@st.composite
def matrices(draw: st.DrawFn) -> list[list[float]]:
    """Any links, or two groups with strong links inside and weak ones between: else one node is the smallest cut."""
    num = draw(sizes_up_to(7).filter(lambda size: size > 1))
    values = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0]), min_size=num * num, max_size=num * num))
    if draw(st.booleans()):
        group = draw(st.permutations(range(num)))[: num // 2]
        weak = [(at // num in group) != (at % num in group) for at in range(num * num)]
        values = [value / 16 if is_weak else value + 1.0 for value, is_weak in zip(values, weak, strict=True)]
    return [[values[min(a, b) * num + max(a, b)] if a != b else 0.0 for b in range(num)] for a in range(num)]


@reaches(several_nodes=0.02, connected=0.1)
@examples(200)
@given(matrices())
def test_no_cut_is_smaller(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    num = len(matrix)

    def cut(side: Sequence[int]) -> float:
        other = [node for node in range(num) if node not in side]
        return float(matrix[np.ix_(list(side), other)].sum())

    side = minimum_cut(matrix, [{0}] * num)
    assert 1 <= len(side) <= num / 2
    assert cut(side) == min(cut(nodes) for size in range(1, num) for nodes in combinations(range(num), size))
    reach("several_nodes", cut(side) < min(cut([node]) for node in range(num)))
    reach("connected", cut(side) > 0 and num > 3)


@pytest.mark.parametrize(
    "spec",
    [
        "8 x T4 @ 10 GB/s",
        "4 x 4 x T4 @ 100 GB/s / 1.25 GB/s",
        # A minimum cut takes off single devices here, and all devices are alike.
        "4 x 8 x T4 @ 300 GB/s / 25 GB/s",
        "3 x 5 x T4 @ 10 GB/s / 10 GB/s",
        "100 x 2 x T4 @ 10 GB/s / 1 GB/s",
        "128 x 8 x T4 @ 100 GB/s / 1.25 GB/s",
        "1024 x T4 @ 10 GB/s",
    ],
)
def test_regular_clusters_stay_as_they_are(spec: str) -> None:
    cluster = load_cluster(spec)
    assert order_devices(cluster) == list(range(cluster.num_devices))


def test_hosts_are_gathered() -> None:
    assert order_devices(cluster_of("abab")) == [0, 2, 1, 3]
    assert order_devices(cluster_of("abcabc")) == [0, 3, 1, 4, 2, 5]
    # Also where what leaves a host is as fast as what does not, but shares an interface; or all links are alike.
    assert order_devices(cluster_of("abab", between=10.0, interface=1.0)) == [0, 2, 1, 3]
    assert order_devices(cluster_of("abab", between=10.0)) == [0, 2, 1, 3]


def test_strong_links_make_neighbours() -> None:
    # A chain 0 = 2 = 1 = 3 of strong links.
    assert order_devices(cluster_of("hhhh", {(0, 2): 90.0, (2, 1): 90.0, (1, 3): 90.0})) == [0, 2, 1, 3]
    # Strong links between devices 1 and 4 of a and c, 0 and 2 of a and b: b a c, turned to meet there.
    cluster = cluster_of("aabbcc", {(1, 4): 8.0, (0, 2): 7.0})
    assert order_devices(cluster) == [3, 2, 0, 1, 4, 5]


def test_only_the_first_devices() -> None:
    assert order_devices(cluster_of("abab"), 3) == [0, 2, 1]
    assert order_devices(cluster_of("abab"), 1) == [0]


def test_weights() -> None:
    # Inside 10 + 10; between 1 + 1; relative to 10. An interface of 2 is shared by the 2 * 2 pairs that leave the host.
    assert link_weights(cluster_of("aabb"))[0].tolist() == [0.0, 2.0, 0.2, 0.2]
    assert link_weights(cluster_of("aabb", interface=2.0))[0].tolist() == [0.0, 2.0, 0.1, 0.1]
    assert link_weights(cluster_of("ab", between=float("inf")))[0].tolist() == [0.0, 2e6]


def random_links(num: int, seed: int) -> dict[tuple[int, int], float]:
    values = np.random.default_rng(seed).uniform(1, 9, (num, num))
    return {(a, b): float(values[a, b]) for a in range(num) for b in range(a)}


@reaches(renumbered=0.1, reordered=0.1)
@examples(40)
@given(st.integers(2, 9), st.integers(0, 10**6), st.data())
def test_the_numbers_of_devices_do_not_matter(num: int, seed: int, data: st.DataObject) -> None:
    # No two links alike, so nothing is decided by numbers but which end comes first.
    links = random_links(num, seed)
    number = data.draw(st.permutations(range(num)))
    order = order_devices(cluster_of("h" * num, links))
    renumbered = order_devices(
        cluster_of("h" * num, {(number[a], number[b]): value for (a, b), value in links.items()})
    )
    assert [number[device] for device in order] in (renumbered, renumbered[::-1])
    reach("renumbered", num > 2 and number != sorted(number))
    reach("reordered", order not in (sorted(order), sorted(order, reverse=True)))


@reaches(part=0.05, all_devices=0.02, reordered=0.02)
@examples(100)
@given(clusters(max_devices=9), st.integers(1, 9))
def test_any_cluster(cluster: Cluster, num_devices: int) -> None:
    order = order_devices(cluster, num_devices)
    assert sorted(order) == list(range(min(num_devices, cluster.num_devices)))
    assert order == order_devices(msgspec.structs.replace(cluster), num_devices)
    reach("part" if num_devices < cluster.num_devices else "all_devices", cluster.num_devices > 1)
    reach("reordered", order != sorted(order))


@reaches(apart=0.1, hosts=0.1)
@examples(60)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.floats(0.1, 9.9))
def test_hosts_with_strong_insides_stay_together(hosts: list[str], between: float) -> None:
    cluster = cluster_of(hosts, between=between)
    assert num_changes(cluster, order_devices(cluster)) == len(set(hosts)) - 1
    reach("hosts", len(set(hosts)) > 2)
    reach("apart", num_changes(cluster, range(len(hosts))) > len(set(hosts)) - 1)


def test_many_unequal_devices() -> None:
    num = MAX_NODES + 20
    cluster = cluster_of("h" * num, random_links(num, 1))
    assert sorted(order_devices(cluster)) == list(range(num))


@pytest.mark.parametrize(
    ("fast", "num", "groups"),
    # Four nodes of at most twice their mean size, along the fastest links, and not more merges than needed.
    [
        ([(0, 5, 9.0), (1, 4, 8.0), (2, 7, 7.0), (3, 6, 6.0)], 8, [(0, 5), (1, 4), (2, 7), (3, 6)]),
        ([(0, 5, 9.0), (1, 4, 8.0), (2, 3, 7.0)], 6, [(0, 5), (1, 4), (2,), (3,)]),
        ([(0, 1, 9.0), (1, 2, 8.0), (3, 4, 7.0)], 5, [(0, 1), (2,), (3,), (4,)]),
        # The fourth link would join five devices, so the next one is taken.
        (
            [(0, 1, 9.0), (1, 2, 8.0), (2, 3, 7.0), (3, 4, 6.0), (5, 6, 5.0)],
            8,
            [(0, 1, 2, 3), (4,), (5, 6), (7,)],
        ),
    ],
)
def test_contraction_follows_the_fastest_links(
    fast: list[tuple[int, int, float]], num: int, groups: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_order, "MAX_NODES", 4)
    links = {(one, other): rate for one, other, rate in fast}
    cluster = cluster_of("h" * num, links, inside=1.0)
    weights = device_order._Links(link_weights(cluster), [0] * num, frozenset())
    assert device_order._contract(weights, [(number,) for number in range(num)]) == groups


def test_pairs_with_fast_links_stay_together_in_a_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_order, "MAX_NODES", 4)
    pairs = [(0, 5), (1, 4), (2, 7), (3, 6)]
    cluster = cluster_of("h" * 8, {pair: 9.0 - number for number, pair in enumerate(pairs)}, inside=1.0)
    order = order_devices(cluster)
    assert sorted(order) == list(range(8))
    assert {tuple(sorted(order[at : at + 2])) for at in range(0, 8, 2)} == set(pairs)
