"""Completion of a declaration to a cluster: fills in defaults, records them as assumptions, checks consistency."""

import msgspec

from penstock.cluster.declaration.device_traits import ResolvedTraits, resolve
from penstock.cluster.declaration.types import (
    REGULAR,
    ClusterDeclaration,
    DeviceDeclaration,
    HostDeclaration,
    Traits,
)
from penstock.cluster.declaration.wires import wire_up
from penstock.cluster.types import Cluster, Device
from penstock.errors import InputError
from penstock.names import list_names, suggest_names

MAX_DEVICES = 65_536

_NO_DEVICES = "Write hosts = ... and devices_per_host = ..., or a [[device]] for each."


def complete(declaration: ClusterDeclaration) -> Cluster:
    """Build the declared cluster. `assumptions` lists every default that was filled in.

    Devices are in the order of their hosts; those with a [[device]] table come last.

    Raises:
        InputError: A required key is missing, or names are duplicate or do not exist.
    """
    hosts, host_notes = _all_hosts(declaration)
    devices, device_notes = _all_devices(declaration, hosts)
    wiring = wire_up(declaration, hosts, devices)
    probed = declaration.probed
    if probed is not None and probed.residuals and len(probed.residuals) != len(devices):
        what = f"residuals has {len(probed.residuals)} rows for {len(devices)} devices"
        raise InputError(what, where=declaration.at("probe.residuals"), hint="Remove it if devices were added by hand.")
    counts = [entry.num_devices for entry in declaration.all_reduces]
    if len(set(counts)) < len(counts):
        what = "two all-reduces over the same number of devices"
        raise InputError(what, where=declaration.at("all_reduce"), hint="Put all sizes into one [[all_reduce]].")
    return Cluster(
        name=declaration.name,
        hosts=wiring.hosts,
        devices=devices,
        between=wiring.between,
        links=wiring.links,
        assumptions=(*declaration.assumptions, *host_notes, *device_notes, *wiring.assumptions),
        all_reduces=declaration.all_reduces,
        probed=msgspec.UNSET if probed is None else probed,
    )


def _all_hosts(declaration: ClusterDeclaration) -> tuple[tuple[HostDeclaration, ...], list[str]]:
    """Return the hosts of `hosts = n`, then those with a [[host]], each with its number of regular devices."""
    notes: list[str] = []
    num_regular, per_host = declaration.num_hosts, declaration.devices_per_host
    if num_regular is None and not declaration.hosts:
        if per_host is None and not declaration.devices:
            raise InputError("the cluster has no devices", where=declaration.where, hint=_NO_DEVICES)
        num_regular = 1
        notes.append("`hosts` is not specified: all devices are on one host, h0.")
    if num_regular is not None and per_host is None and not declaration.devices:
        per_host = 1
        notes.append("`devices_per_host` is not specified: each of the `hosts` has one device.")
    num_regular, per_host = num_regular or 0, per_host or 0
    with_table = [
        host
        if host.num_devices is not None
        else msgspec.structs.replace(host, num_devices=declaration.devices_per_host or 0)
        for host in declaration.hosts
    ]
    num_devices = num_regular * per_host + sum(host.num_devices or 0 for host in with_table) + len(declaration.devices)
    if num_devices == 0:
        raise InputError("the cluster has no devices", where=declaration.where, hint=_NO_DEVICES)
    # Checked before anything is built, so that a typo does not exhaust memory.
    if max(num_devices, num_regular) > MAX_DEVICES:
        what = f"the cluster has more than {MAX_DEVICES:,} hosts or devices"
        raise InputError(what, where=declaration.where, hint="Check hosts, devices_per_host and devices.")
    regular = [HostDeclaration(path=REGULAR, name=f"h{number}", num_devices=per_host) for number in range(num_regular)]
    seen: set[str] = set()
    for host in (*regular, *with_table):
        if host.name in seen:
            raise InputError(f"duplicate host {host.name!r}", where=declaration.at(f"{host.path}.name"))
        seen.add(host.name)
    return (*regular, *with_table), notes


def _all_devices(
    declaration: ClusterDeclaration, hosts: tuple[HostDeclaration, ...]
) -> tuple[tuple[Device, ...], list[str]]:
    """Return the regular devices host by host, then those with a [[device]]."""
    devices: list[Device] = []
    resolved: list[ResolvedTraits] = []
    for host in hosts:
        if not host.num_devices:
            continue
        traits = _resolve(declaration, (host.traits, declaration.traits), host.path)
        prefix = "" if len(hosts) == 1 and host.path == REGULAR else f"{host.name}."
        devices.extend(_device(f"{prefix}d{number}", host.name, traits) for number in range(host.num_devices))
        resolved.append(traits)
    seen = {device.name for device in devices}
    by_name = {host.name: host for host in hosts}
    for item in declaration.devices:
        if item.name in seen:
            raise InputError(f"duplicate device {item.name!r}", where=declaration.at(f"{item.path}.name"))
        seen.add(item.name)
        host = _host_of(declaration, item, by_name)
        traits = _resolve(declaration, (item.traits, host.traits, declaration.traits), item.path)
        devices.append(_device(item.name, host.name, traits))
        resolved.append(traits)
    notes = dict.fromkeys(traits.memory_assumption for traits in resolved)
    return tuple(devices), [*filter(None, notes), *_speed_assumption(resolved)]


def _device(name: str, host: str, traits: ResolvedTraits) -> Device:
    return Device(name=name, host=host, kind=traits.kind, memory_bytes=traits.memory_bytes, speed=traits.speed)


def _resolve(declaration: ClusterDeclaration, levels: tuple[Traits, ...], path: str) -> ResolvedTraits:
    traits = resolve(levels)
    if traits is None:
        key = "kind" if path == REGULAR else f"{path}.kind"
        hint = 'Specify the device kind, such as kind = "A100-40"; it must be a kind that the profile has times for.'
        raise InputError("kind is missing", where=declaration.at(key), hint=hint)
    return traits


def _host_of(
    declaration: ClusterDeclaration, device: DeviceDeclaration, hosts: dict[str, HostDeclaration]
) -> HostDeclaration:
    where = declaration.at(f"{device.path}.host")
    if device.host is None:
        if len(hosts) == 1:
            return next(iter(hosts.values()))
        hint = f"Name one of the {len(hosts):,} hosts."
        raise InputError(f"host is missing for device {device.name!r}", where=where, hint=hint)
    if device.host not in hosts:
        raise InputError(f"host {device.host!r} does not exist", where=where, hint=suggest_names(device.host, hosts))
    return hosts[device.host]


def _speed_assumption(resolved: list[ResolvedTraits]) -> list[str]:
    kinds = dict.fromkeys(traits.kind for traits in resolved if traits.is_default_speed)
    if not kinds:
        return []
    whose = "any device" if all(traits.is_default_speed for traits in resolved) else f"all of {list_names(kinds)}"
    return [f"No speed is specified for {whose}: assumed 1.0, the full speed of the kind."]
