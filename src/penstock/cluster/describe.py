"""A cluster in a few rows of plain data, for people: hosts that are alike together, wires that are alike together."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, permutations, product

import msgspec

from penstock.cluster.names import listed
from penstock.cluster.types import Cluster, Device, Host, Link, Wire

_NUMBERED = re.compile(r"(.*?)([0-9]{1,12})")


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
    inside: tuple[Wire, ...]
    """The different wires between devices of one host, the slowest first; none where a device is alone."""
    interface_bandwidth: float | None

    @property
    def label(self) -> str:
        """The name of the host; of those that are numbered one after the other the first and the last."""
        if len(self.hosts) == 1 or not _are_consecutive(self.hosts):
            return listed(self.hosts)
        return f"{self.hosts[0]} .. {self.hosts[-1]} ({len(self.hosts)})"


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
    own_links = _links_inside(devices_on, cluster.links)
    rows: dict[object, list[Host]] = {}
    for host in cluster.hosts:
        traits = tuple((device.kind, device.memory_bytes, device.speed) for device in devices_on[host.name])
        links = tuple(sorted(own_links[host.name].items(), key=lambda item: item[0]))
        rows.setdefault((host.inside, host.interface_bandwidth, traits, links), []).append(host)
    return [_row(hosts, devices_on[hosts[0].name], own_links[hosts[0].name].values()) for hosts in rows.values()]


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


def _are_consecutive(names: Sequence[str]) -> bool:
    """Whether these are one name with numbers that count up.

    >>> _are_consecutive(["n09", "n10"]), _are_consecutive(["n1", "n3"]), _are_consecutive(["a", "b"])
    (True, False, False)
    """
    found = [_NUMBERED.fullmatch(name) for name in names]
    parts = [(match[1], int(match[2])) for match in found if match is not None]
    first = parts[0] if len(parts) == len(names) else ("", 0)
    return parts == [(first[0], first[1] + place) for place in range(len(names))]


def _links_inside(
    devices_on: Mapping[str, Sequence[Device]], links: Iterable[Link]
) -> dict[str, dict[tuple[int, int], Wire]]:
    """By host: the wires between its devices that are said one by one, by the places of the two devices."""
    place = {device.name: (host, number) for host, found in devices_on.items() for number, device in enumerate(found)}
    inside: dict[str, dict[tuple[int, int], Wire]] = {host: {} for host in devices_on}
    for link in links:
        (host, source), (other, target) = place[link.source], place[link.target]
        if host == other:
            inside[host][source, target] = link.wire
    return inside


def _row(hosts: list[Host], devices: list[Device], own_wires: Collection[Wire]) -> HostRow:
    num_pairs = len(devices) * (len(devices) - 1)
    wires = {*own_wires, *([hosts[0].inside] if len(own_wires) < num_pairs else [])}
    return HostRow(
        hosts=tuple(host.name for host in hosts),
        num_devices=len(devices),
        kinds=tuple(Counter(device.kind for device in devices).items()),
        memory_bytes=tuple(dict.fromkeys(device.memory_bytes for device in devices)),
        speeds=tuple(dict.fromkeys(device.speed for device in devices)),
        inside=tuple(sorted(wires, key=lambda wire: (wire.bandwidth, -wire.latency_s))),
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
