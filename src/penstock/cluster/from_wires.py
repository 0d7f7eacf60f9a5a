"""A cluster from the wire of every pair of devices: the most common wire becomes the default, the others links."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.types import NEVER_USED, Cluster, Device, Host, Link, Wire


def cluster_from_wires(
    name: str,
    devices: Sequence[Device],
    wires: Mapping[tuple[int, int], Wire],
    *,
    interfaces: Mapping[str, float] | None = None,
    assumptions: Iterable[str] = (),
    probed: ProbeRecord | msgspec.UnsetType = msgspec.UNSET,
) -> Cluster:
    """Build a cluster from its devices and the wire of each directed pair.

    Args:
        name: Name of the cluster.
        devices: The devices.
        wires: The wire of every directed pair of positions in `devices`.
        interfaces: Bandwidth of shared network interfaces, by host.
        assumptions: Assumptions of the cluster.
        probed: Provenance, if the cluster was measured.

    Example:
        >>> devices = [Device(name=name, host="h", kind="T4") for name in "abc"]
        >>> slow, fast = Wire(bandwidth=1e9), Wire(bandwidth=2e9)
        >>> pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
        >>> cluster = cluster_from_wires("three", devices, {pair: fast if pair == (0, 1) else slow for pair in pairs})
        >>> cluster.hosts[0].inside.bandwidth, [(link.source, link.target) for link in cluster.links]
        (1000000000.0, [('a', 'b')])
    """
    host_of = [device.host for device in devices]
    inside: dict[str, Counter[Wire]] = {host: Counter() for host in host_of}
    across: Counter[Wire] = Counter()
    for (source, target), wire in wires.items():
        (inside[host_of[source]] if host_of[source] == host_of[target] else across)[wire] += 1
    # A default that no pair needs is set to another wire and never used; with one host, to that of the host.
    spare = _most_common(inside[host_of[0]], NEVER_USED)
    between = _most_common(across, spare)
    usual = {host: _most_common(counts, between) for host, counts in inside.items()}
    links = tuple(
        Link(source=devices[source].name, target=devices[target].name, wire=wire)
        for (source, target), wire in sorted(wires.items())
        if wire != (usual[host_of[source]] if host_of[source] == host_of[target] else between)
    )
    shared = interfaces or {}
    return Cluster(
        name=name,
        hosts=tuple(Host(name=host, inside=usual[host], interface_bandwidth=shared.get(host)) for host in usual),
        devices=tuple(devices),
        between=between,
        links=links,
        assumptions=tuple(assumptions),
        probed=probed,
    )


def _most_common(counts: Counter[Wire], otherwise: Wire) -> Wire:
    return counts.most_common(1)[0][0] if counts else otherwise
