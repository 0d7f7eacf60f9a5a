"""Detection of shared network interfaces: concurrent transfers of a host that are slower than each of them alone.

For every host two sets of concurrent transfers are measured: one leaves the host, one enters it, between its different
devices and as many other hosts as possible. With one transfer to each other host, only the interface of the host itself
can be shared. If a host has more devices than there are other hosts, a second set uses all its devices. The interface
at the other end may then be the bottleneck: it is not if it has carried clearly more at another time, and it is if it
is known to be shared and saturated. Between two hosts the two interfaces cannot be distinguished, and need not be.
"""

from collections.abc import Mapping, Sequence

from penstock.probe.types import Flow, FlowSet, Pair, RankInfo, hosts_of

SLOWED = 0.85
"""Concurrent transfers below this fraction of their separate rates slow each other down."""
SATURATED = 0.8
"""Fraction of its bandwidth from which an interface counts as saturated."""


def plan_flow_sets(rank_infos: tuple[RankInfo, ...], *, one_each: bool) -> list[tuple[str, bool, tuple[Pair, ...]]]:
    """Choose the concurrent transfers to measure: host, whether it sends, and (source, target) of each transfer.

    With `one_each` no rank takes part in two concurrent transfers, which NCCL does not support.
    """
    hosts = hosts_of(rank_infos)
    flow_sets = []
    for index, (host, ranks) in enumerate(hosts.items()):
        names = list(hosts)
        others = [hosts[name] for name in (*names[index + 1 :], *names[:index])]
        if not others or (len(others) == 1 and index):  # with two hosts, one measurement covers both
            continue
        most = max(len(ranks), 2) if len(others) > 1 else max(len(ranks), len(others[0]))
        sizes = {most} if len(others) == 1 else {min(most, len(others)), most if len(ranks) > len(others) else 0}
        for size in sorted(sizes):
            pairs = _choose_pairs(ranks, others, size, one_each=one_each)
            if len(pairs) < 2:
                continue
            flow_sets.append((host, True, pairs))
            flow_sets.append((host, False, tuple((target, source) for source, target in pairs)))
    return flow_sets


def shared_interfaces(rank_infos: tuple[RankInfo, ...], flow_sets: Sequence[FlowSet]) -> dict[str, float]:
    """Return the bandwidth of each shared interface by host; the slower direction if the two differ clearly."""
    host_of = {info.rank: info.host for info in rank_infos}
    hosts = set(host_of.values())
    seen: dict[str, list[float]] = {}
    if len(hosts) == 2:
        for flow_set in flow_sets:
            if _is_slowed(flow_set.flows):
                for host in hosts:
                    seen.setdefault(host, []).append(_rate(flow_set.flows))
        return _combine(seen)
    most = _highest_rates(flow_sets, host_of)
    waiting = []
    for flow_set in flow_sets:
        # An interface that has carried clearly more at another time does not limit this transfer.
        free = [
            flow
            for flow in flow_set.flows
            if _rate_through(flow_set, flow, host_of) < SATURATED * most[_other_host(flow_set, flow, host_of)]
        ]
        if _is_slowed(free):
            seen.setdefault(flow_set.host, []).append(_rate(flow_set.flows))
        else:
            waiting.append(flow_set)
    for flow_set in waiting:
        known = _combine(seen)
        full = {host for host, rate in known.items() if rate * SATURATED <= _rate_through_host(flow_set, host, host_of)}
        if _is_slowed([flow for flow in flow_set.flows if _other_host(flow_set, flow, host_of) not in full]):
            seen.setdefault(flow_set.host, []).append(_rate(flow_set.flows))
    return _combine(seen)


def _is_slowed(flows: Sequence[Flow]) -> bool:
    return _rate(flows) < SLOWED * sum(flow.alone for flow in flows)


def _rate(flows: Sequence[Flow]) -> float:
    return sum(flow.busy for flow in flows)


def _highest_rates(flow_sets: Sequence[FlowSet], host_of: Mapping[int, str]) -> dict[str, float]:
    """Return the highest measured rate through each host's interface in one direction."""
    most: dict[str, float] = {}
    for flow_set in flow_sets:
        most[flow_set.host] = max(most.get(flow_set.host, 0.0), _rate(flow_set.flows))
        for flow in flow_set.flows:
            for host in (flow_set.host, _other_host(flow_set, flow, host_of)):
                most[host] = max(most.get(host, 0.0), flow.alone)
            other = _other_host(flow_set, flow, host_of)
            most[other] = max(most[other], _rate_through_host(flow_set, other, host_of))
    return most


def _rate_through(flow_set: FlowSet, flow: Flow, host_of: Mapping[int, str]) -> float:
    return _rate_through_host(flow_set, _other_host(flow_set, flow, host_of), host_of)


def _rate_through_host(flow_set: FlowSet, host: str, host_of: Mapping[int, str]) -> float:
    """Return the rate through the interface of a host at the other end of the transfers."""
    return _rate([flow for flow in flow_set.flows if _other_host(flow_set, flow, host_of) == host])


def _other_host(flow_set: FlowSet, flow: Flow, host_of: Mapping[int, str]) -> str:
    return host_of[flow.target if flow_set.outgoing else flow.source]


def _combine(seen: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Combine the rates of each host: their mean if they differ only by noise, else the minimum."""
    return {
        host: sum(rates) / len(rates) if min(rates) >= SLOWED * max(rates) else min(rates)
        for host, rates in seen.items()
    }


def _choose_pairs(
    here: Sequence[int], others: Sequence[Sequence[int]], size: int, *, one_each: bool
) -> tuple[Pair, ...]:
    """Choose `size` pairs of a rank in `here` and one in `others`, over as many ranks and hosts as possible."""
    used = [0] * len(others)
    pairs: dict[Pair, None] = {}
    for number in range(size):
        other = number % len(others)
        pair = here[number % len(here)], others[other][used[other] % len(others[other])]
        used[other] += 1
        if one_each and any(set(pair) & set(taken) for taken in pairs):
            continue
        pairs[pair] = None
    return tuple(pairs)
