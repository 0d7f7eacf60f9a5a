"""Which interfaces are shared, from rates that an ideal network would give."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from penstock.probe.shared_interfaces import SLOWED, crowded_pairs, shared_interfaces
from penstock.probe.types import Crowd, Flow, Pair, Seat


def seats_of(*per_host: int) -> tuple[Seat, ...]:
    hosts = [f"h{place}" for place, number in enumerate(per_host) for _ in range(number)]
    return tuple(Seat(rank=rank, host=host, kind="x", memory_bytes=None) for rank, host in enumerate(hosts))


def fair_rates(flows: Sequence[Pair], host_of: Sequence[str], wire: float, limits: Mapping[str, float]) -> list[float]:
    """All flows grow evenly until what they go over is full: max-min fairness, in small steps of water-filling."""
    rates, open_flows = [0.0] * len(flows), set(range(len(flows)))
    while open_flows:
        resources: dict[object, tuple[float, list[int]]] = {}
        for number, (source, target) in enumerate(flows):
            resources[number] = (wire, [number])
            for key in (("out", host_of[source]), ("in", host_of[target])):
                if key[1] in limits:
                    resources.setdefault(key, (limits[key[1]], []))[1].append(number)
        room = {
            key: (limit - sum(rates[one] for one in users)) / len(open_flows & set(users))
            for key, (limit, users) in resources.items()
            if open_flows & set(users)
        }
        step = min(room.values())
        for number in open_flows:
            rates[number] += step
        full = {key for key, left in room.items() if left <= step * (1 + 1e-9)}
        open_flows -= {number for key in full for number in resources[key][1]}
    return rates


def measured(seats: tuple[Seat, ...], wire: float, limits: Mapping[str, float]) -> list[Crowd]:
    host_of = [seat.host for seat in seats]
    crowds = []
    for host, outgoing, pairs in crowded_pairs(seats, one_each=False):
        alone = [fair_rates([pair], host_of, wire, limits)[0] for pair in pairs]
        busy = fair_rates(pairs, host_of, wire, limits)
        flows = [
            Flow(source=a, target=b, alone=before, busy=after)
            for (a, b), before, after in zip(pairs, alone, busy, strict=True)
        ]
        crowds.append(Crowd(host=host, outgoing=outgoing, flows=tuple(flows)))
    return crowds


def visible(seats: tuple[Seat, ...], wire: float, limits: Mapping[str, float]) -> set[str]:
    """The hosts whose limit is clearly below what all others could carry to or from them in one of their crowds."""
    host_of = [seat.host for seat in seats]
    found = set()
    for host, outgoing, pairs in crowded_pairs(seats, one_each=False):
        others = [host_of[pair[1] if outgoing else pair[0]] for pair in pairs]
        elsewhere = sum(min(wire * others.count(other), limits.get(other, wire * len(pairs))) for other in set(others))
        if host in limits and limits[host] < 0.8 * elsewhere:
            found.add(host)
    return found


def combinations(num_hosts: int) -> list[dict[str, float]]:
    return [
        {f"h{place}": limit for place, limit in enumerate(which) if limit is not None}
        for which in itertools.product((None, 100.0, 40.0, 130.0), repeat=num_hosts)
    ]


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 2, 2, 2), (1, 1, 1), (1, 2, 1)])
def test_one_transfer_to_each_other_host_leaves_no_doubt(shape: tuple[int, ...]) -> None:
    seats, wire = seats_of(*shape), 100.0
    for limits in combinations(len(shape)):
        found = shared_interfaces(seats, measured(seats, wire, limits))
        assert visible(seats, wire, limits) <= set(found), limits
        assert found == pytest.approx({host: limits.get(host, 0.0) for host in found}), limits


@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 1, 2), (1, 4, 4), (8, 8, 8), (2, 2, 2)])
def test_what_is_found_explains_what_was_measured(shape: tuple[int, ...]) -> None:
    # With several transfers to one other host, two explanations can be equally good: an interface here or there.
    seats, wire = seats_of(*shape), 100.0
    for limits in combinations(len(shape)):
        crowds = measured(seats, wire, limits)
        again = measured(seats, wire, shared_interfaces(seats, crowds))
        for one, other in zip(crowds, again, strict=True):
            before, after = (sum(flow.busy for flow in crowd.flows) for crowd in (one, other))
            assert after == pytest.approx(before, rel=1 - SLOWED + 0.05), limits


@pytest.mark.parametrize("limit", [40.0, 100.0, 130.0, 250.0])
def test_hosts_with_more_devices_than_others(limit: float) -> None:
    seats = seats_of(4, 4, 4)
    limits = dict.fromkeys(("h0", "h1", "h2"), limit)
    assert shared_interfaces(seats, measured(seats, 100.0, limits)) == pytest.approx(limits)


@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (1, 3)])
def test_two_hosts_have_one_limit(shape: tuple[int, int]) -> None:
    seats = seats_of(*shape)
    assert shared_interfaces(seats, measured(seats, 100.0, {})) == {}
    assert shared_interfaces(seats, measured(seats, 100.0, {"h0": 70.0, "h1": 120.0})) == {"h0": 70.0, "h1": 70.0}


def test_directions_that_differ_count_as_the_slower_one() -> None:
    def crowd(outgoing: bool, busy: float) -> Crowd:
        pairs = [(0, other) if outgoing else (other, 0) for other in (1, 2)]
        flows = tuple(Flow(source=a, target=b, alone=100.0, busy=busy) for a, b in pairs)
        return Crowd(host="h0", outgoing=outgoing, flows=flows)

    seats = seats_of(1, 1, 1)
    assert shared_interfaces(seats, [crowd(True, 50.0), crowd(False, 48.0)]) == {"h0": 98.0}
    assert shared_interfaces(seats, [crowd(True, 50.0), crowd(False, 20.0)]) == {"h0": 40.0}
    assert shared_interfaces(seats, [crowd(True, 95.0), crowd(False, 90.0)]) == {}


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 1)])
def test_nothing_to_crowd(shape: tuple[int, ...]) -> None:
    assert crowded_pairs(seats_of(*shape), one_each=False) == []


def test_one_each() -> None:
    for _, _, pairs in crowded_pairs(seats_of(2, 2, 2), one_each=True):
        ranks = [rank for pair in pairs for rank in pair]
        assert len(set(ranks)) == len(ranks)
    assert crowded_pairs(seats_of(1, 1, 1), one_each=True) == []
