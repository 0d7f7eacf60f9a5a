"""A cluster in a few rows of plain data, for people: hosts that are alike together, wires that are alike together."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, permutations, product

import msgspec

from penstock.cluster.types import Cluster, Device, Host, Wire


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that are alike in everything but their names and the names of their devices."""

    hosts: tuple[str, ...]
    num_devices: int
    """On each of the hosts."""
    kinds: tuple[tuple[str, int], ...]
    """Each kind, and how many devices of it each host has."""
    memory_bytes: tuple[int | None, ...]
    """The different memory sizes, in the order of the devices; None is no known limit."""
    speeds: tuple[float, ...]
    """The different speeds, in the order of the devices."""
    inside: Wire
    interface_bandwidth: float | None

    @property
    def label(self) -> str:
        """The name of the host, or of the first and the last of them."""
        return self.hosts[0] if len(self.hosts) == 1 else f"{self.hosts[0]} .. {self.hosts[-1]} ({len(self.hosts)})"


class LinkClass(msgspec.Struct, frozen=True, kw_only=True):
    """All directed links with one and the same wire."""

    wire: Wire
    num_links: int
    source: str
    """The first of these links leads from this device ..."""
    target: str
    """... to this one."""


def cluster_rows(cluster: Cluster) -> list[HostRow]:
    """One row for all hosts that are alike, in the order of the cluster.

    >>> from penstock.cluster.load import parse_spec
    >>> [row.label for row in cluster_rows(parse_spec("3 x 2 x T4 @ 10 GB/s / 1 GB/s"))]
    ['h0 .. h2 (3)']
    """
    devices_on: dict[str, list[Device]] = {host.name: [] for host in cluster.hosts}
    for device in cluster.devices:
        devices_on[device.host].append(device)
    rows: dict[object, list[Host]] = {}
    for host in cluster.hosts:
        traits = tuple((device.kind, device.memory_bytes, device.speed) for device in devices_on[host.name])
        rows.setdefault((host.inside, host.interface_bandwidth, traits), []).append(host)
    return [_row(hosts, devices_on[hosts[0].name]) for hosts in rows.values()]


def link_classes(cluster: Cluster) -> list[LinkClass]:
    """The different wires with their numbers of directed links, the slowest first.

    Pairs are counted host by host and corrected by `links`, so the time does not grow with the square of the devices.
    """
    host_of = {device.name: device.host for device in cluster.devices}
    num_on = Counter(host_of.values())
    inside = {host.name: host.inside for host in cluster.hosts}
    numbers: Counter[Wire] = Counter()
    for host, number in num_on.items():
        numbers[inside[host]] += number * (number - 1)
    numbers[cluster.between] += len(host_of) ** 2 - sum(number**2 for number in num_on.values())
    for link in cluster.links:
        same_host = host_of[link.source] == host_of[link.target]
        numbers[inside[host_of[link.source]] if same_host else cluster.between] -= 1
        numbers[link.wire] += 1
    classes = [
        LinkClass(wire=wire, num_links=numbers[wire], source=source, target=target)
        for wire, (source, target) in _examples(cluster).items()
    ]
    return sorted(classes, key=lambda item: (item.wire.bandwidth, -item.wire.latency_s))


def bottleneck(cluster: Cluster) -> LinkClass | None:
    """The slowest links, by bandwidth and then by latency, shared interfaces left aside; None for one device."""
    return next(iter(link_classes(cluster)), None)


def _row(hosts: list[Host], devices: list[Device]) -> HostRow:
    return HostRow(
        hosts=tuple(host.name for host in hosts),
        num_devices=len(devices),
        kinds=tuple(Counter(device.kind for device in devices).items()),
        memory_bytes=tuple(dict.fromkeys(device.memory_bytes for device in devices)),
        speeds=tuple(dict.fromkeys(device.speed for device in devices)),
        inside=hosts[0].inside,
        interface_bandwidth=hosts[0].interface_bandwidth,
    )


def _examples(cluster: Cluster) -> dict[Wire, tuple[str, str]]:
    """One pair of devices for every wire that joins any."""
    with_link = {(link.source, link.target) for link in cluster.links}
    names_on: dict[str, list[str]] = {}
    for device in cluster.devices:
        names_on.setdefault(device.host, []).append(device.name)

    def first(pairs: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        # Every pair that is passed over has a link of its own, so this ends after as many steps as there are links.
        return next((pair for pair in pairs if pair not in with_link), None)

    examples: dict[Wire, tuple[str, str]] = {}
    for host in cluster.hosts:
        if host.inside not in examples and (pair := first(permutations(names_on.get(host.name, ()), 2))):
            examples[host.inside] = pair
    host_pairs = permutations(names_on.values(), 2)
    across = chain.from_iterable(product(sources, targets) for sources, targets in host_pairs)
    if cluster.between not in examples and (pair := first(across)):
        examples[cluster.between] = pair
    for link in cluster.links:
        examples.setdefault(link.wire, (link.source, link.target))
    return examples
