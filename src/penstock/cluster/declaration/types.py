"""The declaration of a cluster: the contents of a file or spec, before defaults are filled in."""

from typing import Literal

import msgspec

from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.types import Wire
from penstock.profile import MeasuredAllReduce

UNLIMITED = "unlimited"
"""Keyword for a bandwidth or a memory without limit."""

REGULAR = "hosts"
"""Key path of the hosts that have no [[host]] table."""


class WireDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A wire and its key path."""

    key: str
    wire: Wire
    has_latency: bool


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of devices, at the top level, of a host or of one device."""

    kind: str | None = None
    memory: int | Literal["unlimited"] | None = None
    speed: float | None = None


class HostDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A host and the key path of its table."""

    path: str
    name: str
    num_devices: int | None = None
    traits: Traits = Traits()
    inside: WireDeclaration | None = None
    interface: float | bool | None = None
    """A bandwidth; True: that of `between`; False: not shared; None: not specified."""


class DeviceDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A device and the key path of its table."""

    path: str
    name: str
    host: str | None
    traits: Traits


class LinkDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """One direction between two devices and the key paths of its ends."""

    source_key: str
    source: str
    target_key: str
    target: str
    wire: WireDeclaration


class ClusterDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of a cluster file; None for a missing key."""

    where: str
    """Name of the file, for errors."""
    name: str
    num_hosts: int | None = None
    devices_per_host: int | None = None
    traits: Traits = Traits()
    inside: WireDeclaration | None = None
    between: WireDeclaration | None = None
    interface: float | bool | None = None
    hosts: tuple[HostDeclaration, ...] = ()
    devices: tuple[DeviceDeclaration, ...] = ()
    links: tuple[LinkDeclaration, ...] = ()
    assumptions: tuple[str, ...] = ()
    probed: ProbeRecord | None = None
    all_reduces: tuple[MeasuredAllReduce, ...] = ()

    def at(self, key: str) -> str:
        """Return the location of a key, for errors."""
        return f"{self.where}, at {key}" if self.where else key
