"""The wires of a cluster: which are needed, which are given, and what stands in for the others."""

from collections import Counter

import msgspec

from penstock.cluster.declaration.declared import REGULAR, WrittenCluster, WrittenHost, WrittenWire
from penstock.cluster.names import listed, near_names
from penstock.cluster.types import NEVER_USED, Device, Host, Link, Wire
from penstock.errors import InputError


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a cluster that is made of wires."""

    hosts: tuple[Host, ...]
    between: Wire
    links: tuple[Link, ...]
    assumptions: tuple[str, ...]


def wire_up(written: WrittenCluster, hosts: tuple[WrittenHost, ...], devices: tuple[Device, ...]) -> Wiring:
    """All wires between the devices, and what was assumed for those that are not given."""
    links = _links(written, devices)
    num_devices = Counter(device.host for device in devices)
    open_inside, open_between = _pairs_without_link(devices, num_devices, links)
    given = _given_wires(written, hosts)
    between, between_notes = _between(written, given, needed=open_between > 0)
    insides, inside_notes = _insides(written, hosts, between, open_inside)
    if len(hosts) == 1:
        # There is nothing to join, so nothing is assumed.
        between_notes = []
        inside_notes = inside_notes if len(devices) > 1 else []
    return Wiring(
        hosts=tuple(
            Host(name=host.name, inside=inside, interface_bandwidth=_interface(written, host))
            for host, inside in zip(hosts, insides, strict=True)
        ),
        between=between,
        links=links,
        assumptions=(
            *inside_notes,
            *between_notes,
            *_latency_assumption(given),
            *_interface_assumption(written, hosts, num_devices),
        ),
    )


def _links(written: WrittenCluster, devices: tuple[Device, ...]) -> tuple[Link, ...]:
    names = {device.name: None for device in devices}
    seen: set[tuple[str, str]] = set()
    for link in written.links:
        for key, end in ((link.source_key, link.source), (link.target_key, link.target)):
            if end not in names:
                raise InputError(f"device {end!r} is not there", where=written.at(key), hint=near_names(end, names))
        if link.source == link.target:
            raise InputError(f"a link from device {link.source!r} to itself", where=written.at(link.target_key))
        if (link.source, link.target) in seen:
            what = f"the link from {link.source!r} to {link.target!r} is given twice"
            hint = "`between` gives both directions, `from` and `to` give one: keep one of the two."
            raise InputError(what, where=written.at(link.source_key), hint=hint)
        seen.add((link.source, link.target))
    return tuple(Link(source=link.source, target=link.target, wire=link.wire.wire) for link in written.links)


def _pairs_without_link(
    devices: tuple[Device, ...], num_devices: Counter[str], links: tuple[Link, ...]
) -> tuple[dict[str, int], int]:
    """Directed pairs that have no link of their own: on each host, and between hosts."""
    host_of = {device.name: device.host for device in devices}
    inside = {host: number * (number - 1) for host, number in num_devices.items()}
    between = len(devices) ** 2 - sum(number**2 for number in num_devices.values())
    for link in links:
        host = host_of[link.source]
        if host == host_of[link.target]:
            inside[host] -= 1
        else:
            between -= 1
    return inside, between


def _between(written: WrittenCluster, given: list[WrittenWire], *, needed: bool) -> tuple[Wire, list[str]]:
    if written.between is not None:
        return written.between.wire, []
    if needed:
        hint = 'Say what joins devices of different hosts: between = "1.25 GB/s, 30 us".'
        raise InputError("between is missing", where=written.at("between"), hint=hint)
    return given[0].wire if given else NEVER_USED, ["`between` is not given, and no two devices need it."]


def _insides(
    written: WrittenCluster, hosts: tuple[WrittenHost, ...], between: Wire, open_inside: dict[str, int]
) -> tuple[list[Wire], list[str]]:
    missing = [] if written.inside else [host for host in hosts if host.inside is None]
    needed = [host for host in missing if open_inside.get(host.name)]
    if needed and written.between is None:
        key = "inside" if needed[0].path == REGULAR else f"{needed[0].path}.inside"
        hint = 'Say what joins devices of one host: inside = "25 GB/s, 5 us".'
        raise InputError("inside is missing", where=written.at(key), hint=hint)
    notes = []
    if needed:
        whose = f"host {listed(host.name for host in needed)}" if len(needed) < len(hosts) else "any host"
        notes.append(f"`inside` is not given for {whose}: its devices are taken to be joined as by `between`.")
    elif missing:
        notes.append("`inside` is not given, and no two devices need it.")
    default = written.inside.wire if written.inside else between
    return [host.inside.wire if host.inside else default for host in hosts], notes


def _interface(written: WrittenCluster, host: WrittenHost) -> float | None:
    interface = host.interface if host.interface is not None else written.interface
    if interface is None or interface is False:
        return None
    if interface is not True:
        return interface
    if written.between is None:
        key = "shared_interface" if host.interface is None else f"{host.path}.shared_interface"
        hint = "`true` means the bandwidth of `between`: give that, or write the bandwidth here."
        raise InputError("the bandwidth of the interface is not known", where=written.at(key), hint=hint)
    return written.between.wire.bandwidth


def _given_wires(written: WrittenCluster, hosts: tuple[WrittenHost, ...]) -> list[WrittenWire]:
    """Every wire of the file once; a link in both directions is one wire."""
    wires = [written.inside, written.between, *(host.inside for host in hosts), *(link.wire for link in written.links)]
    return list({wire.key: wire for wire in wires if wire is not None}.values())


def _latency_assumption(given: list[WrittenWire]) -> list[str]:
    keys = [wire.key for wire in given if not wire.latency_given]
    return [f"No latency is given for {listed(keys)}: none (0 s) is taken."] if keys else []


def _interface_assumption(
    written: WrittenCluster, hosts: tuple[WrittenHost, ...], num_devices: Counter[str]
) -> list[str]:
    if len(num_devices) < 2 or written.interface is not None:
        return []
    unsaid = [host.name for host in hosts if host.interface is None and num_devices[host.name] > 1]
    if not unsaid:
        return []
    whose = f"host {listed(unsaid)}" if len(unsaid) < len(hosts) else "any host"
    return [f"`shared_interface` is not given for {whose}: its devices do not slow each other down on the network."]
