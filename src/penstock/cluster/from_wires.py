"""A cluster from the wire of every pair: what most of them have is said once, the others become links of their own."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.cluster.provenance import Probed
from penstock.cluster.types import NEVER_USED, Cluster, Device, Host, Link, Wire


def assemble(
    name: str,
    devices: Sequence[Device],
    wires: Mapping[tuple[int, int], Wire],
    *,
    interfaces: Mapping[str, float] | None = None,
    assumptions: Iterable[str] = (),
    probed: Probed | msgspec.UnsetType = msgspec.UNSET,
) -> Cluster:
    """The cluster of these devices; `wires` has every directed pair of their places, `interfaces` the shared ones.

    >>> devices = [Device(name=name, host="h", kind="T4") for name in "abc"]
    >>> slow, fast = Wire(bandwidth=1e9), Wire(bandwidth=2e9)
    >>> pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    >>> cluster = assemble("three", devices, {pair: fast if pair == (0, 1) else slow for pair in pairs})
    >>> cluster.hosts[0].inside.bandwidth, [(link.source, link.target) for link in cluster.links]
    (1000000000.0, [('a', 'b')])
    """
    host_of = [device.host for device in devices]
    inside: dict[str, Counter[Wire]] = {host: Counter() for host in host_of}
    across: Counter[Wire] = Counter()
    for (source, target), wire in wires.items():
        (inside[host_of[source]] if host_of[source] == host_of[target] else across)[wire] += 1
    # Where no pair needs a wire, another one stands there and is never used; on one host it is that of the host.
    spare = _commonest(inside[host_of[0]], NEVER_USED)
    between = _commonest(across, spare)
    usual = {host: _commonest(found, between) for host, found in inside.items()}
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


def _commonest(found: Counter[Wire], otherwise: Wire) -> Wire:
    return found.most_common(1)[0][0] if found else otherwise
