"""Detection of shared interfaces, from the rates of an ideal network."""

import itertools
from collections.abc import Mapping, Sequence

import pytest

from penstock.probe.shared_interfaces import SLOWED, plan_flow_sets, shared_interfaces
from penstock.probe.types import Flow, FlowSet, Pair, RankInfo


def infos_of(*per_host: int) -> tuple[RankInfo, ...]:
    hosts = [f"h{index}" for index, number in enumerate(per_host) for _ in range(number)]
    return tuple(RankInfo(rank=rank, host=host, kind="x", memory_bytes=None) for rank, host in enumerate(hosts))


def fair_rates(flows: Sequence[Pair], host_of: Sequence[str], wire: float, limits: Mapping[str, float]) -> list[float]:
    """Max-min fair rates by water-filling: all flows grow evenly until an interface or wire is saturated."""
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


def measured(rank_infos: tuple[RankInfo, ...], wire: float, limits: Mapping[str, float]) -> list[FlowSet]:
    host_of = [info.host for info in rank_infos]
    flow_sets = []
    for host, outgoing, pairs in plan_flow_sets(rank_infos, one_each=False):
        alone = [fair_rates([pair], host_of, wire, limits)[0] for pair in pairs]
        busy = fair_rates(pairs, host_of, wire, limits)
        flows = [
            Flow(source=a, target=b, alone=before, busy=after)
            for (a, b), before, after in zip(pairs, alone, busy, strict=True)
        ]
        flow_sets.append(FlowSet(host=host, outgoing=outgoing, flows=tuple(flows)))
    return flow_sets


def visible(rank_infos: tuple[RankInfo, ...], wire: float, limits: Mapping[str, float]) -> set[str]:
    """The hosts whose limit is clearly below the total capacity of the others in one of their flow sets."""
    host_of = [info.host for info in rank_infos]
    found = set()
    for host, outgoing, pairs in plan_flow_sets(rank_infos, one_each=False):
        others = [host_of[pair[1] if outgoing else pair[0]] for pair in pairs]
        elsewhere = sum(min(wire * others.count(other), limits.get(other, wire * len(pairs))) for other in set(others))
        if host in limits and limits[host] < 0.8 * elsewhere:
            found.add(host)
    return found


def combinations(num_hosts: int) -> list[dict[str, float]]:
    return [
        {f"h{index}": limit for index, limit in enumerate(which) if limit is not None}
        for which in itertools.product((None, 100.0, 40.0, 130.0), repeat=num_hosts)
    ]


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 2, 2, 2), (1, 1, 1), (1, 2, 1)])
def test_one_transfer_to_each_other_host_leaves_no_doubt(shape: tuple[int, ...]) -> None:
    rank_infos, wire = infos_of(*shape), 100.0
    for limits in combinations(len(shape)):
        found = shared_interfaces(rank_infos, measured(rank_infos, wire, limits))
        assert visible(rank_infos, wire, limits) <= set(found), limits
        assert found == pytest.approx({host: limits.get(host, 0.0) for host in found}), limits


@pytest.mark.parametrize("shape", [(4, 4, 4), (3, 1, 2), (1, 4, 4), (8, 8, 8), (2, 2, 2)])
def test_the_result_explains_the_measurements(shape: tuple[int, ...]) -> None:
    # With several transfers to one other host, two explanations can be equally good: an interface here or there.
    rank_infos, wire = infos_of(*shape), 100.0
    for limits in combinations(len(shape)):
        flow_sets = measured(rank_infos, wire, limits)
        again = measured(rank_infos, wire, shared_interfaces(rank_infos, flow_sets))
        for one, other in zip(flow_sets, again, strict=True):
            before, after = (sum(flow.busy for flow in flow_set.flows) for flow_set in (one, other))
            assert after == pytest.approx(before, rel=1 - SLOWED + 0.05), limits


@pytest.mark.parametrize("limit", [40.0, 100.0, 130.0, 250.0])
def test_hosts_with_more_devices_than_others(limit: float) -> None:
    rank_infos = infos_of(4, 4, 4)
    limits = dict.fromkeys(("h0", "h1", "h2"), limit)
    assert shared_interfaces(rank_infos, measured(rank_infos, 100.0, limits)) == pytest.approx(limits)


@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (1, 3)])
def test_two_hosts_have_one_limit(shape: tuple[int, int]) -> None:
    rank_infos = infos_of(*shape)
    assert shared_interfaces(rank_infos, measured(rank_infos, 100.0, {})) == {}
    limited = measured(rank_infos, 100.0, {"h0": 70.0, "h1": 120.0})
    assert shared_interfaces(rank_infos, limited) == {"h0": 70.0, "h1": 70.0}


def test_directions_that_differ_count_as_the_slower_one() -> None:
    def flow_set(outgoing: bool, busy: float) -> FlowSet:
        pairs = [(0, other) if outgoing else (other, 0) for other in (1, 2)]
        flows = tuple(Flow(source=a, target=b, alone=100.0, busy=busy) for a, b in pairs)
        return FlowSet(host="h0", outgoing=outgoing, flows=flows)

    rank_infos = infos_of(1, 1, 1)
    assert shared_interfaces(rank_infos, [flow_set(True, 50.0), flow_set(False, 48.0)]) == {"h0": 98.0}
    assert shared_interfaces(rank_infos, [flow_set(True, 50.0), flow_set(False, 20.0)]) == {"h0": 40.0}
    assert shared_interfaces(rank_infos, [flow_set(True, 95.0), flow_set(False, 90.0)]) == {}


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 1)])
def test_nothing_to_crowd(shape: tuple[int, ...]) -> None:
    assert plan_flow_sets(infos_of(*shape), one_each=False) == []


def test_one_each() -> None:
    for _, _, pairs in plan_flow_sets(infos_of(2, 2, 2), one_each=True):
        ranks = [rank for pair in pairs for rank in pair]
        assert len(set(ranks)) == len(ranks)
    assert plan_flow_sets(infos_of(1, 1, 1), one_each=True) == []
