"""Warnings about a cluster: asymmetric links, slow devices, outdated measurements."""

from datetime import datetime

import msgspec

from penstock.cluster.provenance import MAX_AGE
from penstock.cluster.types import Cluster
from penstock.names import list_names
from penstock.units import show_rate

UNEVEN = 1.25
"""Ratio of the faster direction of a link to the slower one above which a link is reported."""
LAGGING = 0.9
"""Fraction of the speed of the fastest device of a kind below which a device is reported."""


def cluster_warnings(cluster: Cluster) -> list[str]:
    """Return a sentence for each suspicious property: links that are slower in one direction, slow devices."""
    return [*_uneven_links(cluster), *_slow_devices(cluster)]


def age_warning(cluster: Cluster, now: datetime) -> str | None:
    """Return a warning if the cluster was measured more than a month before `now`, else None."""
    if isinstance(cluster.probed, msgspec.UnsetType) or now - cluster.probed.date <= MAX_AGE:
        return None
    days = (now - cluster.probed.date).days
    date = cluster.probed.date.date().isoformat()
    return f"cluster {cluster.name} was measured {days} days ago ({date}): measure it again if it has changed"


def _uneven_links(cluster: Cluster) -> list[str]:
    # Only explicit links can differ by direction.
    rates = {(link.source, link.target): link.wire.bandwidth for link in cluster.links}
    host_of = {device.name: device.host for device in cluster.devices}
    inside = {host.name: host.inside.bandwidth for host in cluster.hosts}
    uneven = []
    for (source, target), rate in rates.items():
        same = host_of[source] == host_of[target]
        back = rates.get((target, source), inside[host_of[source]] if same else cluster.between.bandwidth)
        if rate >= UNEVEN * (1 + _measurement_error(cluster, source, target)) * back:
            uneven.append(f"{source} to {target} {show_rate(rate)}, back {show_rate(back)}")
    return [f"links differ between their two directions: {list_names(uneven)}"] if uneven else []


def _measurement_error(cluster: Cluster, source: str, target: str) -> float:
    """Return the relative difference of the two directions that measurement error alone can explain."""
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
