"""The wires of a cluster: those required, those declared, and defaults for the others."""

from collections import Counter

import msgspec

from penstock.cluster.declaration.types import REGULAR, ClusterDeclaration, HostDeclaration, WireDeclaration
from penstock.cluster.types import NEVER_USED, Device, Host, Link, Wire
from penstock.errors import InputError
from penstock.names import list_names, suggest_names


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts, wires and links of a cluster."""

    hosts: tuple[Host, ...]
    between: Wire
    links: tuple[Link, ...]
    assumptions: tuple[str, ...]


def wire_up(declaration: ClusterDeclaration, hosts: tuple[HostDeclaration, ...], devices: tuple[Device, ...]) -> Wiring:
    """Determine all wires between the devices, with assumptions for those that are not declared."""
    links = _links(declaration, devices)
    num_devices = Counter(device.host for device in devices)
    open_inside, open_between = _pairs_without_link(devices, num_devices, links)
    declared = _declared_wires(declaration, hosts)
    between, between_notes = _between(declaration, declared, needed=open_between > 0)
    insides, inside_notes = _insides(declaration, hosts, between, open_inside)
    if len(hosts) == 1:
        # There are no pairs of hosts, so nothing is assumed.
        between_notes = []
        inside_notes = inside_notes if len(devices) > 1 else []
    return Wiring(
        hosts=tuple(
            Host(name=host.name, inside=inside, interface_bandwidth=_interface(declaration, host))
            for host, inside in zip(hosts, insides, strict=True)
        ),
        between=between,
        links=links,
        assumptions=(
            *inside_notes,
            *between_notes,
            *_latency_assumption(declared),
            *_interface_assumption(declaration, hosts, num_devices),
        ),
    )


def _links(declaration: ClusterDeclaration, devices: tuple[Device, ...]) -> tuple[Link, ...]:
    names = {device.name: None for device in devices}
    seen: set[tuple[str, str]] = set()
    for link in declaration.links:
        for key, end in ((link.source_key, link.source), (link.target_key, link.target)):
            if end not in names:
                what = f"device {end!r} does not exist"
                raise InputError(what, where=declaration.at(key), hint=suggest_names(end, names))
        if link.source == link.target:
            what = f"a link connects device {link.source!r} to itself"
            raise InputError(what, where=declaration.at(link.target_key))
        if (link.source, link.target) in seen:
            what = f"duplicate link from {link.source!r} to {link.target!r}"
            hint = "`between` declares both directions, `from` and `to` declare one: keep one of the two."
            raise InputError(what, where=declaration.at(link.source_key), hint=hint)
        seen.add((link.source, link.target))
    return tuple(Link(source=link.source, target=link.target, wire=link.wire.wire) for link in declaration.links)


def _pairs_without_link(
    devices: tuple[Device, ...], num_devices: Counter[str], links: tuple[Link, ...]
) -> tuple[dict[str, int], int]:
    """Count the directed pairs without an explicit link: on each host, and between hosts."""
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


def _between(
    declaration: ClusterDeclaration, declared: list[WireDeclaration], *, needed: bool
) -> tuple[Wire, list[str]]:
    if declaration.between is not None:
        return declaration.between.wire, []
    if needed:
        hint = 'Specify the connection between hosts: between = "1.25 GB/s, 30 us".'
        raise InputError("between is missing", where=declaration.at("between"), hint=hint)
    return declared[0].wire if declared else NEVER_USED, ["`between` is not specified, and no two devices need it."]


def _insides(
    declaration: ClusterDeclaration, hosts: tuple[HostDeclaration, ...], between: Wire, open_inside: dict[str, int]
) -> tuple[list[Wire], list[str]]:
    missing = [] if declaration.inside else [host for host in hosts if host.inside is None]
    needed = [host for host in missing if open_inside.get(host.name)]
    if needed and declaration.between is None:
        key = "inside" if needed[0].path == REGULAR else f"{needed[0].path}.inside"
        hint = 'Specify the connection between devices of one host: inside = "25 GB/s, 5 us".'
        raise InputError("inside is missing", where=declaration.at(key), hint=hint)
    notes = []
    if needed:
        whose = f"host {list_names(host.name for host in needed)}" if len(needed) < len(hosts) else "any host"
        notes.append(f"`inside` is not specified for {whose}: assumed equal to `between`.")
    elif missing:
        notes.append("`inside` is not specified, and no two devices need it.")
    default = declaration.inside.wire if declaration.inside else between
    return [host.inside.wire if host.inside else default for host in hosts], notes


def _interface(declaration: ClusterDeclaration, host: HostDeclaration) -> float | None:
    interface = host.interface if host.interface is not None else declaration.interface
    if interface is None or interface is False:
        return None
    if interface is not True:
        return interface
    if declaration.between is None:
        key = "shared_interface" if host.interface is None else f"{host.path}.shared_interface"
        hint = "`true` means the bandwidth of `between`: specify it, or write the bandwidth here."
        raise InputError("the bandwidth of the interface is unknown", where=declaration.at(key), hint=hint)
    return declaration.between.wire.bandwidth


def _declared_wires(declaration: ClusterDeclaration, hosts: tuple[HostDeclaration, ...]) -> list[WireDeclaration]:
    """Return every wire of the file once; a link in both directions is one wire."""
    wires = [
        declaration.inside,
        declaration.between,
        *(host.inside for host in hosts),
        *(link.wire for link in declaration.links),
    ]
    return list({wire.key: wire for wire in wires if wire is not None}.values())


def _latency_assumption(declared: list[WireDeclaration]) -> list[str]:
    keys = [wire.key for wire in declared if not wire.has_latency]
    return [f"No latency is specified for {list_names(keys)}: assumed 0 s."] if keys else []


def _interface_assumption(
    declaration: ClusterDeclaration, hosts: tuple[HostDeclaration, ...], num_devices: Counter[str]
) -> list[str]:
    if len(num_devices) < 2 or declaration.interface is not None:
        return []
    unspecified = [host.name for host in hosts if host.interface is None and num_devices[host.name] > 1]
    if not unspecified:
        return []
    whose = f"host {list_names(unspecified)}" if len(unspecified) < len(hosts) else "any host"
    return [f"`shared_interface` is not specified for {whose}: devices are assumed not to share network bandwidth."]
