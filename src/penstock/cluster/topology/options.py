"""What a user says beside a topology, as the texts do not say it themselves."""

from collections.abc import Mapping

import msgspec

from penstock.cluster.topology.link_types import LinkTypes
from penstock.cluster.types import Device, Wire
from penstock.errors import InputError
from penstock.profile import find_kind
from penstock.units import show_bytes, show_rate, show_seconds

MAX_DEVICES = 1024
"""A matrix of links is made link by link."""

UNKNOWN_KIND = "GPU"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be given; None is what was not."""

    kind: str | None = None
    num_hosts: int | None = None
    """For texts of one host: so many of them, all alike."""
    devices_per_host: int | None = None
    """For texts of hosts only."""
    between: Wire | None = None
    """What joins hosts, for texts of one host."""
    nodes: str | None = None
    """The host list of the nodes to keep, for Slurm."""
    links: LinkTypes = LinkTypes()

    def refuse(self, what: str, *names: str) -> None:
        """An error for the first of these that was given: the format has no use for it."""
        for name in names:
            if getattr(self, name) is not None:
                option = "--" + {"num_hosts": "hosts"}.get(name, name).replace("_", "-")
                raise InputError(f"{option} is of no use for {what}", where=option, hint="Leave it out.")


def make_device(name: str, host: str, kind: str) -> Device:
    """A device of full speed, with the memory of its kind's data sheet."""
    sheet = find_kind(kind)
    return Device(name=name, host=host, kind=kind, memory_bytes=sheet.memory_bytes if sheet else None)


def kind_notes(kinds: set[str], *, said: bool) -> list[str]:
    """What is assumed about devices of these kinds; `said`: their kind was given, or is in the text."""
    notes = []
    if not said:
        notes.append(f"The text does not say which devices these are: kind {UNKNOWN_KIND!r} is taken; --kind says it.")
    for kind in sorted(kinds):
        sheet = find_kind(kind)
        if sheet is not None:
            notes.append(f"The memory of kind {kind!r} is that of its data sheet, {show_bytes(sheet.memory_bytes)}.")
        elif said:
            notes.append(f"The kind {kind!r} is not a known one: no memory limit is taken.")
    return notes


def check_size(num_devices: int, where: str, hint: str) -> None:
    """Refuse what would take for ever."""
    if num_devices > MAX_DEVICES:
        raise InputError(f"{num_devices:,} devices are more than {MAX_DEVICES:,}", where=where, hint=hint)


def class_notes(wires: Mapping[str, Wire], links: LinkTypes) -> list[str]:
    """What the classes of links were taken for that nobody has given."""
    names: dict[Wire, list[str]] = {}
    for name, wire in sorted(wires.items()):
        if name not in links.given and not (name.startswith("NV") and "NV" in links.given):
            names.setdefault(wire, []).append(name)
    if not names:
        return []
    said = "; ".join(
        f"{', '.join(alike)}: {show_rate(wire.bandwidth)}, {show_seconds(wire.latency_s)}"
        for wire, alike in names.items()
    )
    return [f"What classes of links usually reach is taken, nothing is measured: {said} (--link changes it)."]


CLASS_NOTE = "Bandwidths stand for classes of links (docs/clusters.md), they are not measured: --link changes them."
