"""From what was written to a whole cluster: fill in what is missing and say so, refuse what cannot be."""

import msgspec

from penstock.cluster.declaration.declared import REGULAR, Traits, WrittenCluster, WrittenDevice, WrittenHost
from penstock.cluster.declaration.device_traits import Resolved, resolve
from penstock.cluster.declaration.wires import wire_up
from penstock.cluster.names import listed, near_names
from penstock.cluster.types import Cluster, Device
from penstock.errors import InputError

MAX_DEVICES = 65_536

_NO_DEVICES = "Write hosts = ... and devices_per_host = ..., or a [[device]] for each."


def complete(written: WrittenCluster) -> Cluster:
    """The cluster that was written, with everything that it leaves out filled in and told in `assumptions`.

    Devices stand in the order of their hosts; those that have a [[device]] of their own come last.
    """
    hosts, host_notes = _all_hosts(written)
    devices, device_notes = _all_devices(written, hosts)
    wiring = wire_up(written, hosts, devices)
    probed = written.probed
    if probed is not None and probed.residuals and len(probed.residuals) != len(devices):
        what = f"residuals has {len(probed.residuals)} rows for {len(devices)} devices"
        raise InputError(what, where=written.at("probe.residuals"), hint="Leave it out if devices were added by hand.")
    return Cluster(
        name=written.name,
        hosts=wiring.hosts,
        devices=devices,
        between=wiring.between,
        links=wiring.links,
        assumptions=(*written.assumptions, *host_notes, *device_notes, *wiring.assumptions),
        probed=msgspec.UNSET if probed is None else probed,
    )


def _all_hosts(written: WrittenCluster) -> tuple[tuple[WrittenHost, ...], list[str]]:
    """The hosts of `hosts = n`, then those with a [[host]]; each with its number of shorthand devices."""
    notes: list[str] = []
    num_regular, per_host = written.num_hosts, written.devices_per_host
    if num_regular is None and not written.hosts:
        if per_host is None and not written.devices:
            raise InputError("the cluster has no devices", where=written.where, hint=_NO_DEVICES)
        num_regular = 1
        notes.append("`hosts` is not given: all devices are on one host, h0.")
    if num_regular is not None and per_host is None and not written.devices:
        per_host = 1
        notes.append("`devices_per_host` is not given: each of the `hosts` has one device.")
    num_regular, per_host = num_regular or 0, per_host or 0
    with_table = [
        host
        if host.num_devices is not None
        else msgspec.structs.replace(host, num_devices=written.devices_per_host or 0)
        for host in written.hosts
    ]
    num_devices = num_regular * per_host + sum(host.num_devices or 0 for host in with_table) + len(written.devices)
    if num_devices == 0:
        raise InputError("the cluster has no devices", where=written.where, hint=_NO_DEVICES)
    # Counted before anything is made: a slip of the keyboard must not fill the memory.
    if max(num_devices, num_regular) > MAX_DEVICES:
        what = f"more than {MAX_DEVICES:,} hosts or devices"
        raise InputError(what, where=written.where, hint="Check hosts, devices_per_host and devices.")
    regular = [WrittenHost(path=REGULAR, name=f"h{place}", num_devices=per_host) for place in range(num_regular)]
    seen: set[str] = set()
    for host in (*regular, *with_table):
        if host.name in seen:
            raise InputError(f"host {host.name!r} is there twice", where=written.at(f"{host.path}.name"))
        seen.add(host.name)
    return (*regular, *with_table), notes


def _all_devices(written: WrittenCluster, hosts: tuple[WrittenHost, ...]) -> tuple[tuple[Device, ...], list[str]]:
    """The shorthand devices host by host, then those with a [[device]]."""
    devices: list[Device] = []
    resolved: list[Resolved] = []
    for host in hosts:
        if not host.num_devices:
            continue
        traits = _resolve(written, (host.traits, written.traits), host.path)
        prefix = "" if len(hosts) == 1 and host.path == REGULAR else f"{host.name}."
        devices.extend(_device(f"{prefix}d{place}", host.name, traits) for place in range(host.num_devices))
        resolved.append(traits)
    seen = {device.name for device in devices}
    by_name = {host.name: host for host in hosts}
    for item in written.devices:
        if item.name in seen:
            raise InputError(f"device {item.name!r} is there twice", where=written.at(f"{item.path}.name"))
        seen.add(item.name)
        host = _host_of(written, item, by_name)
        traits = _resolve(written, (item.traits, host.traits, written.traits), item.path)
        devices.append(_device(item.name, host.name, traits))
        resolved.append(traits)
    notes = dict.fromkeys(traits.memory_assumption for traits in resolved)
    return tuple(devices), [*filter(None, notes), *_speed_assumption(resolved)]


def _device(name: str, host: str, traits: Resolved) -> Device:
    return Device(name=name, host=host, kind=traits.kind, memory_bytes=traits.memory_bytes, speed=traits.speed)


def _resolve(written: WrittenCluster, levels: tuple[Traits, ...], path: str) -> Resolved:
    traits = resolve(levels)
    if traits is None:
        key = "kind" if path == REGULAR else f"{path}.kind"
        hint = 'Write which device it is, such as kind = "A100-40"; any name will do that the profile has too.'
        raise InputError("kind is missing", where=written.at(key), hint=hint)
    return traits


def _host_of(written: WrittenCluster, device: WrittenDevice, hosts: dict[str, WrittenHost]) -> WrittenHost:
    where = written.at(f"{device.path}.host")
    if device.host is None:
        if len(hosts) == 1:
            return next(iter(hosts.values()))
        hint = f"Name one of the {len(hosts):,} hosts."
        raise InputError(f"host is missing for device {device.name!r}", where=where, hint=hint)
    if device.host not in hosts:
        raise InputError(f"host {device.host!r} is not there", where=where, hint=near_names(device.host, hosts))
    return hosts[device.host]


def _speed_assumption(resolved: list[Resolved]) -> list[str]:
    kinds = dict.fromkeys(traits.kind for traits in resolved if not traits.speed_given)
    if not kinds:
        return []
    whose = "any device" if not any(traits.speed_given for traits in resolved) else f"all of {listed(kinds)}"
    return [f"No speed is given for {whose}: the full speed of the kind (1.0) is taken."]
