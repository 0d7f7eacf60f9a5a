"""A cluster with the speeds that were estimated."""

import math

import msgspec
import numpy as np

from penstock.adaptation.measurement import Link
from penstock.adaptation.speeds import Speed, Speeds
from penstock.cluster import Cluster, Wire
from penstock.cluster import Link as ClusterLink

MAX_ERROR = 0.1
"""A link with a larger relative error counts as not measured: its speed has just changed."""


def with_speeds(cluster: Cluster, speeds: Speeds, *, only_different: bool = True) -> Cluster:
    """A cluster whose devices and links are as fast as estimated.

    Links between two hosts that were not measured are as fast as those that were, if these agree: they share switches
    and interfaces.

    Args:
        cluster: The declared cluster.
        speeds: The estimated speeds.
        only_different: Whether speeds that do not differ by more than their noise stay as declared.
    """

    def applies(speed: Speed) -> bool:
        return not only_different or speed.differs_from(1.0)

    slow = {name: item.slowness for name, item in speeds.devices.items() if applies(item)}
    devices = tuple(
        msgspec.structs.replace(device, speed=device.speed / slow[device.name]) if device.name in slow else device
        for device in cluster.devices
    )
    changed = {link: item.slowness for link, item in speeds.links.items() if applies(item)}
    changed |= _between_hosts(cluster, speeds)
    index = cluster.index
    links = {(link.source, link.target): link for link in cluster.links}
    for (source, target), slowness in changed.items():
        ends = index[source], index[target]
        wire = Wire(bandwidth=float(cluster.bandwidth[ends]) / slowness, latency_s=float(cluster.latency_s[ends]))
        links[source, target] = ClusterLink(source=source, target=target, wire=wire)
    return msgspec.structs.replace(cluster, devices=devices, links=tuple(links.values()))


def _between_hosts(cluster: Cluster, speeds: Speeds) -> dict[Link, float]:
    """The slowness of links between hosts that were not measured, where all measured ones of the two hosts differ."""
    host = {device.name: device.host for device in cluster.devices}
    measured: dict[tuple[str, str], list[Speed]] = {}
    for (source, target), speed in speeds.links.items():
        if host[source] != host[target] and speed.error < MAX_ERROR:
            measured.setdefault((host[source], host[target]), []).append(speed)
    found: dict[Link, float] = {}
    for (one, other), items in measured.items():
        if not all(item.differs_from(1.0) for item in items):
            continue
        slowness = math.exp(float(np.median([math.log(item.slowness) for item in items])))
        sources = [name for name in host if host[name] == one]
        targets = [name for name in host if host[name] == other]
        pairs = [(source, target) for source in sources for target in targets]
        known = {link for link in pairs if link in speeds.links and speeds.links[link].error < MAX_ERROR}
        found |= {link: slowness for link in pairs if link not in known}
    return found
