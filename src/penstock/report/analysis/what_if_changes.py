"""Clusters that are better in one thing: what the critical path is spent on, twice as fast."""

from typing import NamedTuple

import msgspec

from penstock.cluster import Cluster, Host, Link, Wire
from penstock.plan.pricing import Costs
from penstock.report.analysis.bottleneck import Place, path_seconds
from penstock.report.names import shown_name
from penstock.timeline import Timeline
from penstock.units import show_rate

FACTOR = 2
MOST_PLACES = 6
"""So many parts of the critical path are looked at."""


class Change(NamedTuple):
    """A cluster that is better in one thing, in words."""

    text: str
    cluster: Cluster


def changes(timeline: Timeline, costs: Costs) -> list[Change]:
    """What is worth trying: what the critical path is spent on, the most first."""
    found: dict[str, Change] = {}
    for place, seconds in list(path_seconds(timeline).items())[:MOST_PLACES]:
        if seconds > 0:
            for change in _of_place(place, costs):
                found.setdefault(change.text, change)
    return list(found.values())


def _of_place(place: Place, costs: Costs) -> list[Change]:
    cluster = costs.cluster
    if place.device:
        names = _companions(place.device, costs)
        return [Change(f"{_listed(names)} computing twice as fast", _with_devices(cluster, names))]
    if place.source:
        return _faster_link(cluster, cluster.index[place.source], cluster.index[place.target])
    found = []
    for reduction in costs.reductions:
        hosts = {cluster.devices[device].host for device in reduction.ring.devices}
        if len(hosts) == 1:
            found.append(_faster_inside(cluster, hosts.pop()))
        else:
            # The ring waits for its slowest link.
            slowest = min(reduction.ring.links, key=lambda link: float(cluster.bandwidth[link]))
            found += _faster_link(cluster, *slowest)
    return found


def _faster_inside(cluster: Cluster, name: str) -> Change:
    """Everything inside a host twice as fast: a ring has its choice of links there."""
    home = {device.name: device.host for device in cluster.devices}
    links = tuple(
        msgspec.structs.replace(link, wire=_twice(link.wire))
        if home[link.source] == home[link.target] == name
        else link
        for link in cluster.links
    )
    hosts = tuple(
        msgspec.structs.replace(host, inside=_twice(host.inside)) if host.name == name else host
        for host in cluster.hosts
    )
    text = f"links twice as fast inside {shown_name(name)}"
    return Change(text, msgspec.structs.replace(cluster, links=links, hosts=hosts))


def _faster_link(cluster: Cluster, source: int, target: int) -> list[Change]:
    """A link inside a host alone; between hosts what all their links share: the interface, or the network."""
    first, second = cluster.devices[source], cluster.devices[target]
    host = {item.name: item for item in cluster.hosts}
    if first.host == second.host:
        wire = Wire(
            bandwidth=FACTOR * float(cluster.bandwidth[source, target]),
            latency_s=float(cluster.latency_s[source, target]) / FACTOR,
        )
        kept = [link for link in cluster.links if (link.source, link.target) != (first.name, second.name)]
        links = (*kept, Link(source=first.name, target=second.name, wire=wire))
        text = (
            f"a link twice as fast from {shown_name(first.name)} to {shown_name(second.name)} "
            f"({show_rate(wire.bandwidth)})"
        )
        return [Change(text, msgspec.structs.replace(cluster, links=links))]
    limits = [host[name].interface_bandwidth for name in (first.host, second.host)]
    own = [limit for limit in limits if limit is not None]
    if own and min(own) <= float(cluster.bandwidth[source, target]):
        faster = {first.host, second.host}
        hosts = tuple(_with_interface(item) if item.name in faster else item for item in cluster.hosts)
        text = f"network interfaces twice as fast on {' and '.join(sorted(map(shown_name, faster)))}"
        return [Change(text, msgspec.structs.replace(cluster, hosts=hosts))]
    return [_faster_network(cluster)]


def _faster_network(cluster: Cluster) -> Change:
    """Everything between hosts twice as fast."""
    home = {device.name: device.host for device in cluster.devices}
    links = tuple(
        msgspec.structs.replace(link, wire=_twice(link.wire)) if home[link.source] != home[link.target] else link
        for link in cluster.links
    )
    hosts = tuple(_with_interface(item) for item in cluster.hosts)
    between = _twice(cluster.between)
    text = f"a network twice as fast between hosts ({show_rate(between.bandwidth)})"
    return Change(text, msgspec.structs.replace(cluster, links=links, hosts=hosts, between=between))


def _twice(wire: Wire) -> Wire:
    return Wire(bandwidth=FACTOR * wire.bandwidth, latency_s=wire.latency_s / FACTOR)


def _with_interface(host: Host) -> Host:
    if host.interface_bandwidth is None:
        return host
    return msgspec.structs.replace(host, interface_bandwidth=FACTOR * host.interface_bandwidth)


def _companions(name: str, costs: Costs) -> list[str]:
    """The device, and those that share every one of its stages: alone it would only wait for them."""
    groups = [
        {replica.device for replica in group}
        for stage in costs.plan.stages
        for group in (stage.forward, stage.backward)
    ]
    shared = set.intersection(*(group for group in groups if name in group))
    return [device.name for device in costs.cluster.devices if device.name in shared]


def _listed(names: list[str]) -> str:
    shown = [shown_name(name) for name in names]
    return " and ".join(shown) if len(shown) < 4 else f"{shown[0]} and the {len(shown) - 1} that share its work"


def _with_devices(cluster: Cluster, names: list[str]) -> Cluster:
    devices = tuple(
        msgspec.structs.replace(device, speed=FACTOR * device.speed) if device.name in names else device
        for device in cluster.devices
    )
    return msgspec.structs.replace(cluster, devices=devices)
