"""Is a network interface shared? Several links of a host at once tell: together they get less than each has alone.

For every host two crowds are measured: transfers that leave it, and transfers that enter it, from or to its different
devices and, as far as there are, different other hosts. With one transfer to each other host nothing but the host's own
interface can be what they share. Where a host has more devices than there are other hosts, a second crowd has all of
them. There the interface at the other end may be the reason too; it is not, if it has carried clearly more at another
time, and it is, if it is known to be shared and full. Between two hosts it cannot be told whose interface it is, and
makes no difference.
"""

from collections.abc import Mapping, Sequence

from penstock.probe.types import Crowd, Flow, Pair, Seat, hosts_of

SLOWED = 0.85
"""Below this part of what they have alone, transfers at once disturb each other."""
SATURATED = 0.8
"""At this part of its bandwidth an interface is taken to be the reason why."""


def crowded_pairs(seats: tuple[Seat, ...], *, one_each: bool) -> list[tuple[str, bool, tuple[Pair, ...]]]:
    """The crowds to measure: host, whether it sends, and the (source, target) of each transfer.

    With `one_each` no rank takes part in two transfers of a crowd (NCCL cannot do that).
    """
    hosts = hosts_of(seats)
    crowds = []
    for place, (host, ranks) in enumerate(hosts.items()):
        names = list(hosts)
        others = [hosts[name] for name in (*names[place + 1 :], *names[:place])]
        if not others or (len(others) == 1 and place):  # of two hosts, one tells of both
            continue
        most = max(len(ranks), 2) if len(others) > 1 else max(len(ranks), len(others[0]))
        sizes = {most} if len(others) == 1 else {min(most, len(others)), most if len(ranks) > len(others) else 0}
        for size in sorted(sizes):
            pairs = _spread(ranks, others, size, one_each=one_each)
            if len(pairs) < 2:
                continue
            crowds.append((host, True, pairs))
            crowds.append((host, False, tuple((there, here) for here, there in pairs)))
    return crowds


def shared_interfaces(seats: tuple[Seat, ...], crowds: Sequence[Crowd]) -> dict[str, float]:
    """The hosts whose interface is shared, and its bandwidth: the slower direction's, if the two clearly differ."""
    host_of = {seat.rank: seat.host for seat in seats}
    hosts = set(host_of.values())
    seen: dict[str, list[float]] = {}
    if len(hosts) == 2:
        for crowd in crowds:
            if _is_slowed(crowd.flows):
                for host in hosts:
                    seen.setdefault(host, []).append(_rate(crowd.flows))
        return _settled(seen)
    most = _most_seen(crowds, host_of)
    waiting = []
    for crowd in crowds:
        # An interface that has carried clearly more at another time is not what slows a transfer now.
        free = [
            flow
            for flow in crowd.flows
            if _through(crowd, flow, host_of) < SATURATED * most[_other(crowd, flow, host_of)]
        ]
        if _is_slowed(free):
            seen.setdefault(crowd.host, []).append(_rate(crowd.flows))
        else:
            waiting.append(crowd)
    for crowd in waiting:
        known = _settled(seen)
        full = {host for host, rate in known.items() if rate * SATURATED <= _through_host(crowd, host, host_of)}
        if _is_slowed([flow for flow in crowd.flows if _other(crowd, flow, host_of) not in full]):
            seen.setdefault(crowd.host, []).append(_rate(crowd.flows))
    return _settled(seen)


def _is_slowed(flows: Sequence[Flow]) -> bool:
    return _rate(flows) < SLOWED * sum(flow.alone for flow in flows)


def _rate(flows: Sequence[Flow]) -> float:
    return sum(flow.busy for flow in flows)


def _most_seen(crowds: Sequence[Crowd], host_of: Mapping[int, str]) -> dict[str, float]:
    """The most that was ever seen to go through each host's interface in one direction."""
    most: dict[str, float] = {}
    for crowd in crowds:
        most[crowd.host] = max(most.get(crowd.host, 0.0), _rate(crowd.flows))
        for flow in crowd.flows:
            for host in (crowd.host, _other(crowd, flow, host_of)):
                most[host] = max(most.get(host, 0.0), flow.alone)
            other = _other(crowd, flow, host_of)
            most[other] = max(most[other], _through_host(crowd, other, host_of))
    return most


def _through(crowd: Crowd, flow: Flow, host_of: Mapping[int, str]) -> float:
    return _through_host(crowd, _other(crowd, flow, host_of), host_of)


def _through_host(crowd: Crowd, host: str, host_of: Mapping[int, str]) -> float:
    """What goes through the interface at the other end of a crowd."""
    return _rate([flow for flow in crowd.flows if _other(crowd, flow, host_of) == host])


def _other(crowd: Crowd, flow: Flow, host_of: Mapping[int, str]) -> str:
    return host_of[flow.target if crowd.outgoing else flow.source]


def _settled(seen: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """One bandwidth for each host: the mean of what differs only by chance, else the least."""
    return {
        host: sum(rates) / len(rates) if min(rates) >= SLOWED * max(rates) else min(rates)
        for host, rates in seen.items()
    }


def _spread(here: Sequence[int], others: Sequence[Sequence[int]], size: int, *, one_each: bool) -> tuple[Pair, ...]:
    """So many different pairs of a rank here and one elsewhere, over as many ranks and hosts as there are."""
    used = [0] * len(others)
    pairs: dict[Pair, None] = {}
    for number in range(size):
        place = number % len(others)
        pair = here[number % len(here)], others[place][used[place] % len(others[place])]
        used[place] += 1
        if one_each and any(set(pair) & set(taken) for taken in pairs):
            continue
        pairs[pair] = None
    return tuple(pairs)
