"""What is odd about a cluster, for people: uneven directions, a device that lags behind, numbers of long ago."""

from datetime import datetime

import msgspec

from penstock.cluster.names import listed
from penstock.cluster.provenance import MAX_AGE
from penstock.cluster.types import Cluster
from penstock.units import show_rate

UNEVEN = 1.25
"""The faster direction of a link over the slower one, from which on it is worth a word."""
LAGGING = 0.9
"""Below this part of the fastest of its kind, a device is."""


def cluster_doubts(cluster: Cluster) -> list[str]:
    """One sentence for each thing that somebody should look at."""
    return [*_uneven_links(cluster), *_slow_devices(cluster)]


def age_doubt(cluster: Cluster, now: datetime) -> str | None:
    """A sentence if the cluster was measured more than a month ago."""
    if isinstance(cluster.probed, msgspec.UnsetType) or now - cluster.probed.date <= MAX_AGE:
        return None
    days = (now - cluster.probed.date).days
    date = cluster.probed.date.date().isoformat()
    return f"cluster {cluster.name} was measured {days} days ago ({date}): measure it again if anything has changed"


def _uneven_links(cluster: Cluster) -> list[str]:
    # Only links of their own can differ by direction.
    rates = {(link.source, link.target): link.wire.bandwidth for link in cluster.links}
    host_of = {device.name: device.host for device in cluster.devices}
    inside = {host.name: host.inside.bandwidth for host in cluster.hosts}
    uneven = []
    for (source, target), rate in rates.items():
        same = host_of[source] == host_of[target]
        back = rates.get((target, source), inside[host_of[source]] if same else cluster.between.bandwidth)
        if rate >= UNEVEN * (1 + _doubtful(cluster, source, target)) * back:
            uneven.append(f"{source} to {target} {show_rate(rate)}, back {show_rate(back)}")
    return [f"links are uneven in their two directions: {listed(uneven)}"] if uneven else []


def _doubtful(cluster: Cluster, source: str, target: str) -> float:
    """How far the two directions may be apart by the error of their measurement alone, as a fraction."""
    if isinstance(cluster.probed, msgspec.UnsetType) or not cluster.probed.residuals:
        return 0.0
    one, other = cluster.index[source], cluster.index[target]
    return 2 * max(cluster.probed.residuals[one][other], cluster.probed.residuals[other][one])


def _slow_devices(cluster: Cluster) -> list[str]:
    best: dict[str, float] = {}
    for device in cluster.devices:
        best[device.kind] = max(device.speed, best.get(device.kind, 0.0))
    return [
        f"{device.name} has {device.speed / best[device.kind]:.0%} of the speed of the fastest {device.kind}"
        for device in cluster.devices
        if device.speed < LAGGING * best[device.kind]
    ]
