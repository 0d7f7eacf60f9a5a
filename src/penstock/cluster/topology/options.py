"""Options of an import: properties of a cluster that the topology text does not contain."""

from collections.abc import Mapping

import msgspec

from penstock.cluster.topology.link_types import LinkTypes
from penstock.cluster.types import Device, Wire
from penstock.errors import InputError
from penstock.profile import find_kind
from penstock.units import show_bytes, show_rate, show_seconds

MAX_DEVICES = 1024
"""Imports build the link matrix pair by pair."""

UNKNOWN_KIND = "GPU"


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an import; None for an option that is not specified.

    Attributes:
        kind: Device kind of all devices.
        num_hosts: Number of identical hosts, for formats that describe one host.
        devices_per_host: Devices of each host, for formats that describe hosts only.
        between: Connection between hosts, for formats that describe one host.
        nodes: Host list of the nodes to keep, for Slurm.
        links: Link classes with overrides.
    """

    kind: str | None = None
    num_hosts: int | None = None
    devices_per_host: int | None = None
    between: Wire | None = None
    nodes: str | None = None
    links: LinkTypes = LinkTypes()

    def refuse(self, what: str, *names: str) -> None:
        """Raise an error for the first of these options that is specified: it does not apply to the format."""
        for name in names:
            if getattr(self, name) is not None:
                option = "--" + {"num_hosts": "hosts"}.get(name, name).replace("_", "-")
                raise InputError(f"{option} does not apply to {what}", where=option, hint="Omit it.")


def make_device(name: str, host: str, kind: str) -> Device:
    """Make a device with full speed and the memory of its data sheet."""
    sheet = find_kind(kind)
    return Device(name=name, host=host, kind=kind, memory_bytes=sheet.memory_bytes if sheet else None)


def kind_notes(kinds: set[str], *, is_specified: bool) -> list[str]:
    """Return the assumptions about devices of these kinds; `is_specified`: by an option or by the text."""
    notes = []
    if not is_specified:
        notes.append(f"The text does not specify the device kind: assumed {UNKNOWN_KIND!r}; change it with --kind.")
    for kind in sorted(kinds):
        sheet = find_kind(kind)
        if sheet is not None:
            notes.append(f"The memory of kind {kind!r} is {show_bytes(sheet.memory_bytes)}, from its data sheet.")
        elif is_specified:
            notes.append(f"The kind {kind!r} has no data sheet: no memory limit is assumed.")
    return notes


def check_size(num_devices: int, where: str, hint: str) -> None:
    """Raise an error if there are more devices than an import can handle in reasonable time."""
    if num_devices > MAX_DEVICES:
        what = f"number of devices ({num_devices:,}) exceeds the limit of {MAX_DEVICES:,}"
        raise InputError(what, where=where, hint=hint)


def class_notes(wires: Mapping[str, Wire], links: LinkTypes) -> list[str]:
    """Return a note with the wires of the link classes that are not overridden."""
    names: dict[Wire, list[str]] = {}
    for name, wire in sorted(wires.items()):
        if name not in links.overrides and not (name.startswith("NV") and "NV" in links.overrides):
            names.setdefault(wire, []).append(name)
    if not names:
        return []
    figures = "; ".join(
        f"{', '.join(alike)}: {show_rate(wire.bandwidth)}, {show_seconds(wire.latency_s)}"
        for wire, alike in names.items()
    )
    return [f"Bandwidths are typical of their link class, not measured: {figures} (change them with --link)."]


CLASS_NOTE = "Bandwidths are typical of their link class (docs/clusters.md), not measured: change them with --link."
