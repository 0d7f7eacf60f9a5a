"""Clusters with one improvement: a device or a link of the critical path twice as fast."""

from typing import NamedTuple

import msgspec

from penstock.cluster import Cluster, Host, Link, Wire
from penstock.plan.pricing import Costs
from penstock.printable_text import escape_text
from penstock.report.analysis.bottleneck import PathLocation, path_seconds
from penstock.timeline import Timeline
from penstock.units import show_rate

FACTOR = 2
MAX_LOCATIONS = 6
"""The number of locations on the critical path for which changes are made."""


class Change(NamedTuple):
    """A cluster with one improvement, and its description."""

    text: str
    cluster: Cluster


def changes(timeline: Timeline, costs: Costs) -> list[Change]:
    """A change for each location of the critical path, the longest first."""
    by_text: dict[str, Change] = {}
    for location, seconds in list(path_seconds(timeline).items())[:MAX_LOCATIONS]:
        if seconds > 0:
            for change in _changes_at(location, costs):
                by_text.setdefault(change.text, change)
    return list(by_text.values())


def _changes_at(location: PathLocation, costs: Costs) -> list[Change]:
    cluster = costs.cluster
    if location.device:
        names = _companions(location.device, costs)
        return [Change(f"{_join(names)} computing twice as fast", _with_devices(cluster, names))]
    if location.source:
        return _faster_link(cluster, cluster.index[location.source], cluster.index[location.target])
    changes_of_rings = []
    for reduction in costs.reductions:
        hosts = {cluster.devices[device].host for device in reduction.ring.devices}
        if len(hosts) == 1:
            changes_of_rings.append(_faster_inside(cluster, hosts.pop()))
        else:
            # The slowest link sets the speed of the ring.
            slowest = min(reduction.ring.links, key=lambda link: float(cluster.bandwidth[link]))
            changes_of_rings += _faster_link(cluster, *slowest)
    return changes_of_rings


def _faster_inside(cluster: Cluster, name: str) -> Change:
    """All links inside a host twice as fast, because a ring can choose among them."""
    host_of = {device.name: device.host for device in cluster.devices}
    links = tuple(
        msgspec.structs.replace(link, wire=_twice(link.wire))
        if host_of[link.source] == host_of[link.target] == name
        else link
        for link in cluster.links
    )
    hosts = tuple(
        msgspec.structs.replace(host, inside=_twice(host.inside)) if host.name == name else host
        for host in cluster.hosts
    )
    text = f"links inside {escape_text(name)} twice as fast"
    return Change(text, msgspec.structs.replace(cluster, links=links, hosts=hosts))


def _faster_link(cluster: Cluster, source: int, target: int) -> list[Change]:
    """A link inside a host; between hosts the interfaces or the network that all their links share."""
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
            f"a link twice as fast from {escape_text(first.name)} to {escape_text(second.name)} "
            f"({show_rate(wire.bandwidth)})"
        )
        return [Change(text, msgspec.structs.replace(cluster, links=links))]
    limits = [host[name].interface_bandwidth for name in (first.host, second.host)]
    known = [limit for limit in limits if limit is not None]
    if known and min(known) <= float(cluster.bandwidth[source, target]):
        faster = {first.host, second.host}
        hosts = tuple(_with_interface(item) if item.name in faster else item for item in cluster.hosts)
        text = f"network interfaces twice as fast on {' and '.join(sorted(map(escape_text, faster)))}"
        return [Change(text, msgspec.structs.replace(cluster, hosts=hosts))]
    return [_faster_network(cluster)]


def _faster_network(cluster: Cluster) -> Change:
    """All links between hosts twice as fast."""
    host_of = {device.name: device.host for device in cluster.devices}
    links = tuple(
        msgspec.structs.replace(link, wire=_twice(link.wire)) if host_of[link.source] != host_of[link.target] else link
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
    """The device and the replicas of all its stages: a faster device alone would only wait for them."""
    groups = [
        {replica.device for replica in group}
        for stage in costs.plan.stages
        for group in (stage.forward, stage.backward)
    ]
    shared = set.intersection(*(group for group in groups if name in group))
    return [device.name for device in costs.cluster.devices if device.name in shared]


def _join(names: list[str]) -> str:
    shown = [escape_text(name) for name in names]
    return (
        " and ".join(shown) if len(shown) < 4 else f"{shown[0]} and the {len(shown) - 1} other replicas of its stages"
    )


def _with_devices(cluster: Cluster, names: list[str]) -> Cluster:
    devices = tuple(
        msgspec.structs.replace(device, speed=FACTOR * device.speed) if device.name in names else device
        for device in cluster.devices
    )
    return msgspec.structs.replace(cluster, devices=devices)
