"""A summary of a cluster: one row for all identical hosts, one entry for all links with the same wire."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, permutations, product

import msgspec

from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.names import list_names

_NUMBERED = re.compile(r"(.*?)([0-9]{1,12})")


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts that are identical except for their names and the names of their devices.

    Attributes:
        hosts: Names of the hosts.
        num_devices: Devices of each host.
        kinds: Each device kind and its number on each host.
        memory_bytes: The different memory sizes, in the order of the devices. None: no known limit.
        speeds: The different speeds, in the order of the devices.
        inside: The different wires between devices of one host, the slowest first. Empty for a single device.
        interface_bandwidth: As in `Host`.
    """

    hosts: tuple[str, ...]
    num_devices: int
    kinds: tuple[tuple[str, int], ...]
    memory_bytes: tuple[int | None, ...]
    speeds: tuple[float, ...]
    inside: tuple[Wire, ...]
    interface_bandwidth: float | None

    @property
    def label(self) -> str:
        """The names of the hosts; for consecutive numbers the first and the last."""
        if len(self.hosts) == 1 or not _are_consecutive(self.hosts):
            return list_names(self.hosts)
        return f"{self.hosts[0]} .. {self.hosts[-1]} ({len(self.hosts)})"


class LinkClass(msgspec.Struct, frozen=True, kw_only=True):
    """All directed links with the same wire.

    Attributes:
        wire: The wire.
        num_links: Number of directed links.
        source: Sending device of an example.
        target: Receiving device of the example.
    """

    wire: Wire
    num_links: int
    source: str
    target: str


def cluster_rows(cluster: Cluster) -> list[HostRow]:
    """Group identical hosts, in the order of the cluster.

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
    """Return the different wires with their numbers of directed links, the slowest first.

    Pairs are counted by host and corrected by `links`, so the time is not quadratic in the devices.
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
    """Return the slowest links by bandwidth, then latency, without shared interfaces; None for a single device."""
    return next(iter(link_classes(cluster)), None)


def _are_consecutive(names: Sequence[str]) -> bool:
    """Return whether the names are one prefix with consecutive numbers.

    >>> _are_consecutive(["n09", "n10"]), _are_consecutive(["n1", "n3"]), _are_consecutive(["a", "b"])
    (True, False, False)
    """
    matches = [_NUMBERED.fullmatch(name) for name in names]
    parts = [(match[1], int(match[2])) for match in matches if match is not None]
    first = parts[0] if len(parts) == len(names) else ("", 0)
    return parts == [(first[0], first[1] + offset) for offset in range(len(names))]


def _links_inside(
    devices_on: Mapping[str, Sequence[Device]], links: Iterable[Link]
) -> dict[str, dict[tuple[int, int], Wire]]:
    """Return, for each host, the wires of explicit links between its devices, by the positions of both on the host."""
    position = {
        device.name: (host, number) for host, devices in devices_on.items() for number, device in enumerate(devices)
    }
    inside: dict[str, dict[tuple[int, int], Wire]] = {host: {} for host in devices_on}
    for link in links:
        (host, source), (other, target) = position[link.source], position[link.target]
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
    """Return an example pair of devices for every wire in use."""
    with_link = {(link.source, link.target) for link in cluster.links}
    names_on: dict[str, list[str]] = {}
    for device in cluster.devices:
        names_on.setdefault(device.host, []).append(device.name)

    def first(pairs: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
        # Every skipped pair has an explicit link, so this takes at most one step per link.
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
