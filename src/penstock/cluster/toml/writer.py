"""Writer of cluster files in TOML. The file reads back to an equal cluster and leaves nothing to assume.

Wires that no two devices need and that the source did not specify are omitted.
"""

import math
from datetime import UTC

import msgspec

from penstock.cluster.declaration import UNLIMITED
from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.types import NEVER_USED, Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.units import parse_bytes, parse_rate, parse_seconds

_RATE_UNITS = (("GB/s", 1e9), ("MB/s", 1e6))
_TIME_UNITS = (("us", 1e-6), ("ms", 1e-3), ("ns", 1e-9))
_SIZE_UNITS = (("GB", 10**9), ("GiB", 2**30), ("MiB", 2**20), ("MB", 10**6))
_NICE_LENGTH = 8


def write_cluster(cluster: Cluster) -> str:
    """Format a cluster as TOML: in the short form if all hosts and devices are identical, else device by device.

    Raises:
        InputError: A name cannot be encoded as UTF-8.
    """
    regular = _is_regular(cluster)
    lines = [f"name = {_text(cluster.name)}"]
    if regular:
        lines.append(f"hosts = {len(cluster.hosts)}")
        lines.append(f"devices_per_host = {len(cluster.devices) // len(cluster.hosts)}")
        lines += _device_lines(cluster.devices[0])
        lines += _inside_lines(cluster, cluster.hosts[0])
    if len(cluster.hosts) > 1 or cluster.between != cluster.hosts[0].inside:
        lines.append(f"between = {_wire(cluster.between)}")
    if regular:
        lines.append(f"shared_interface = {_interface(cluster.hosts[0])}")
    if cluster.assumptions:
        lines += ["assumptions = [", *(f"  {_text(sentence)}," for sentence in cluster.assumptions), "]"]
    if not isinstance(cluster.probed, msgspec.UnsetType):
        lines += _probe_lines(cluster.probed)
    if not regular:
        for host in cluster.hosts:
            lines += ["", "[[host]]", f"name = {_text(host.name)}", "devices = 0", *_inside_lines(cluster, host)]
            lines.append(f"shared_interface = {_interface(host)}")
        for device in cluster.devices:
            lines += ["", "[[device]]", f"name = {_text(device.name)}", f"host = {_text(device.host)}"]
            lines += _device_lines(device)
    for link in cluster.links:
        lines += ["", "[[link]]", f"from = {_text(link.source)}", f"to = {_text(link.target)}"]
        lines.append(f"wire = {_wire(link.wire)}")
    for entry in cluster.all_reduces:
        lines += ["", "[[all_reduce]]", f"devices = {entry.num_devices}"]
        lines += [f"bytes = {_numbers(entry.num_bytes)}", f"seconds = {_numbers(entry.seconds)}"]
    return "\n".join(lines) + "\n"


def _inside_lines(cluster: Cluster, host: Host) -> list[str]:
    is_alone = len(cluster.devices) == 1 and len(cluster.hosts) == 1
    if is_alone and host.inside == cluster.between == NEVER_USED:
        return []
    return [f"inside = {_wire(host.inside)}"]


def _numbers(values: tuple[float, ...]) -> str:
    return f"[{', '.join(repr(float(value)) for value in values)}]"


def _probe_lines(probed: ProbeRecord) -> list[str]:
    date = probed.date.astimezone(UTC).isoformat().replace("+00:00", "Z")
    lines = ["", "[probe]", f"date = {date}", f"backend = {_text(probed.backend)}", f"rounds = {probed.rounds}"]
    if probed.residuals:
        rows = (", ".join(repr(float(value)) for value in row) for row in probed.residuals)
        lines += ["residuals = [", *(f"  [{row}]," for row in rows), "]"]
    return lines


def _is_regular(cluster: Cluster) -> bool:
    """Return whether the short form suffices: identical hosts h0, h1, ... with equal numbers of identical devices."""
    num_hosts, first_host, first = len(cluster.hosts), cluster.hosts[0], cluster.devices[0]
    per_host, rest = divmod(len(cluster.devices), num_hosts)
    if rest:
        return False
    return all(
        host.name == f"h{number}"
        and host.inside == first_host.inside
        and host.interface_bandwidth == first_host.interface_bandwidth
        for number, host in enumerate(cluster.hosts)
    ) and all(
        device.host == f"h{number // per_host}"
        and device.name == (f"h{number // per_host}." if num_hosts > 1 else "") + f"d{number % per_host}"
        and _traits(device) == _traits(first)
        for number, device in enumerate(cluster.devices)
    )


def _traits(device: Device) -> tuple[str, int | None, float]:
    return device.kind, device.memory_bytes, device.speed


def _device_lines(device: Device) -> list[str]:
    memory = UNLIMITED if device.memory_bytes is None else _size(device.memory_bytes)
    return [f"kind = {_text(device.kind)}", f'memory = "{memory}"', f"speed = {float(device.speed)!r}"]


def _interface(host: Host) -> str:
    return "false" if host.interface_bandwidth is None else f'"{_rate(host.interface_bandwidth)}"'


def _wire(wire: Wire) -> str:
    return f'"{_rate(wire.bandwidth)}, {_time(wire.latency_s)}"'


def _rate(value: float) -> str:
    if math.isinf(value):
        return UNLIMITED
    texts = (f"{value / size:.6g} {unit}" for unit, size in _RATE_UNITS)
    return next((text for text in texts if _is_nice(text) and parse_rate(text) == value), f"{float(value)!r} B/s")


def _time(value: float) -> str:
    texts = (f"{value / size:.6g} {unit}" for unit, size in _TIME_UNITS)
    nice = next((text for text in texts if _is_nice(text) and parse_seconds(text) == value), f"{float(value)!r} s")
    return nice if value else "0 s"


def _size(value: int) -> str:
    texts = (f"{value / size:.6g} {unit}" for unit, size in _SIZE_UNITS)
    return next((text for text in texts if _is_nice(text) and parse_bytes(text) == value), f"{value} B")


def _is_nice(quantity: str) -> bool:
    number = quantity.partition(" ")[0]
    return len(number) <= _NICE_LENGTH and "e" not in number and number not in ("0", "inf")


def _text(value: str) -> str:
    """Format a TOML string in quotes, with control characters escaped."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{value!r} cannot be encoded as UTF-8", hint="Choose another name.") from None
    return '"' + "".join(_escaped(character) for character in value) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return f"\\u{ord(character):04x}" if character < " " or character == "\x7f" else character
