"""Which rank runs which device of a plan, by the hosts, indices and kinds that ranks report.

Launchers number hosts in an arbitrary order, so the position of a rank says little. Hosts are matched by name, or else
by the kinds of their devices; the devices of a host by the number at the end of their name, or else by kind and order.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from penstock.cluster import Device
from penstock.device import DeviceIdentity
from penstock.errors import MismatchError
from penstock.profile import canonical_kind, find_kind

CPU_KIND = "cpu-"
"""Start of the names of CPU kinds."""


def assign_ranks(
    devices: Sequence[Device], identities: Sequence[DeviceIdentity], *, any_kind: bool = False
) -> tuple[int, ...]:
    """Return the rank of each device of a plan.

    Args:
        devices: The devices in use, in the order of the cluster.
        identities: The device of each rank. There may be more ranks than devices.
        any_kind: Whether devices of other kinds than those of the plan are accepted.

    Raises:
        MismatchError: Two ranks have the same device, or a device of the plan has no rank with a device of its kind.
    """
    _check_distinct(identities)
    ranks_of = _by_host(identities)
    devices_of = _devices_by_host(devices)
    if len(ranks_of) < len(devices_of) or len(ranks_of) == 1:
        # The hosts of the plan are not those of the run, as when a plan is tried out on one machine.
        ranks = _within_host(devices, list(range(len(identities))), identities, any_kind=any_kind)
    else:
        hosts = _match_hosts(devices_of, ranks_of, devices, identities)
        chosen: dict[int, int] = {}
        for name, numbers in devices_of.items():
            own = [devices[number] for number in numbers]
            found = _within_host(own, ranks_of[hosts[name]], identities, any_kind=any_kind)
            chosen.update(zip(numbers, found, strict=True))
        ranks = [chosen[number] for number in range(len(devices))]
    return tuple(ranks)


def check_kinds(kinds: Sequence[str], identities: Sequence[DeviceIdentity]) -> None:
    """Check that each rank's device can be one of the kinds that a plan is for.

    Args:
        kinds: The kinds of the plan's cluster; empty if they are unknown.
        identities: The device of each rank.

    Raises:
        MismatchError: A rank's device is of another kind, or two ranks have the same device.
    """
    _check_distinct(identities)
    for rank, identity in enumerate(identities):
        if kinds and all(_other_kind(kind, identity) for kind in kinds):
            _refuse(f"is for devices of kind {' or '.join(kinds)}", rank, identity)


def _check_distinct(identities: Sequence[DeviceIdentity]) -> None:
    first: dict[tuple[str, str], int] = {}
    for rank, item in enumerate(identities):
        if not item.uuid:
            continue
        other = first.setdefault((item.host, item.uuid), rank)
        if other != rank:
            raise MismatchError(
                f"rank {other} and rank {rank} use the same device ({item.type}:{item.index} of host {item.host})",
                hint="Give each rank a device of its own: call select_device by LOCAL_RANK, or start fewer ranks.",
            )


def _by_host(identities: Sequence[DeviceIdentity]) -> dict[str, list[int]]:
    ranks_of: defaultdict[str, list[int]] = defaultdict(list)
    for rank, item in enumerate(identities):
        ranks_of[item.host].append(rank)
    return dict(ranks_of)


def _devices_by_host(devices: Sequence[Device]) -> dict[str, list[int]]:
    devices_of: defaultdict[str, list[int]] = defaultdict(list)
    for number, device in enumerate(devices):
        devices_of[device.host].append(number)
    return dict(devices_of)


def _match_hosts(
    devices_of: dict[str, list[int]],
    ranks_of: dict[str, list[int]],
    devices: Sequence[Device],
    identities: Sequence[DeviceIdentity],
) -> dict[str, str]:
    """Return the real host of each host of the plan: of the same name, else the first one with the same kinds."""
    short = {host.partition(".")[0]: host for host in reversed(ranks_of)}
    hosts = {name: name if name in ranks_of else short[name] for name in devices_of if name in {*ranks_of, *short}}
    free = [host for host in ranks_of if host not in hosts.values()]
    for name, numbers in devices_of.items():
        if name in hosts:
            continue
        wanted = Counter(canonical_kind(devices[number].kind) for number in numbers)
        offers = {host: Counter(identities[rank].kind for rank in ranks_of[host]) for host in free}
        same = [host for host in free if offers[host] == wanted]
        more = [host for host in free if offers[host] >= wanted]
        large = [host for host in free if len(ranks_of[host]) >= len(numbers)]
        fitting = same or more or large
        if not fitting:
            raise MismatchError(
                f"the plan uses {len(numbers)} devices of host {name}, but no host of this run has as many "
                f"free ranks ({', '.join(f'{host}: {len(ranks_of[host])}' for host in ranks_of)})",
                hint="Start one rank for each device of the plan on every host.",
            )
        hosts[name] = fitting[0]
        free.remove(fitting[0])
    return hosts


def _within_host(
    devices: Sequence[Device], ranks: Sequence[int], identities: Sequence[DeviceIdentity], *, any_kind: bool
) -> list[int]:
    """Return the rank of each of the devices, among these ranks."""
    if len(ranks) < len(devices):
        host = identities[ranks[0]].host if ranks else "?"
        raise MismatchError(
            f"the plan uses {len(devices)} devices of host {devices[0].host}, but {host} has {len(ranks)} ranks",
            hint="Start one rank for each device of the plan on every host.",
        )
    free = list(ranks)
    if not any(identities[rank].is_cpu for rank in ranks):
        hosts = list(dict.fromkeys(identities[rank].host for rank in ranks))
        free.sort(key=lambda rank: (hosts.index(identities[rank].host), identities[rank].index))
    chosen: dict[int, int] = {}
    for number, device in enumerate(devices):
        rank = next((rank for rank in free if _is_named(device, identities[rank])), None)
        if rank is not None:
            chosen[number] = rank
            free.remove(rank)
    for number, device in enumerate(devices):
        if number in chosen:
            continue
        fitting = [rank for rank in free if not _other_kind(device.kind, identities[rank])]
        if not fitting and not any_kind:
            _refuse(f"has {device.kind} as device {device.name}", free[0], identities[free[0]])
        chosen[number] = (fitting or free)[0]
        free.remove(chosen[number])
    return [chosen[number] for number in range(len(devices))]


def _is_named(device: Device, identity: DeviceIdentity) -> bool:
    """Whether a device of the right kind has the index at the end of the name, such as 3 in h0.d3."""
    end = re.search(r"(\d+)$", device.name)
    same_kind = canonical_kind(device.kind) == identity.kind
    return not identity.is_cpu and same_kind and end is not None and int(end[1]) == identity.index


def _other_kind(kind: str, identity: DeviceIdentity) -> bool:
    """Whether a rank's device is certainly not of a kind. A name without a data sheet can stand for any device."""
    planned = canonical_kind(kind)
    if planned.startswith(CPU_KIND):
        return not identity.is_cpu
    return planned != identity.kind and find_kind(planned) is not None


def _refuse(plan: str, rank: int, identity: DeviceIdentity) -> None:
    hint = "Plan for the devices of this run, or pass --any-kind (any_kind=True) to accept them as they are."
    if identity.is_cpu:
        hint = (
            "Move the model to the device, plan for the devices of this run, or pass --device cpu (device='cpu') to "
            "train on the CPU as it is."
        )
    raise MismatchError(
        f"the plan {plan}, but rank {rank} on host {identity.host} has {identity.kind}",
        hint=hint,
    )
