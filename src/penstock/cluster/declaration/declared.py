"""A cluster as it was written: only what the file or the spec says, before anything is filled in."""

from typing import Literal

import msgspec

from penstock.cluster.provenance import Probed
from penstock.cluster.types import Wire

UNLIMITED = "unlimited"
"""The word for a bandwidth or a memory without limit."""

REGULAR = "hosts"
"""The key that stands for the hosts which have no [[host]] of their own."""


class WrittenWire(msgspec.Struct, frozen=True, kw_only=True):
    """A wire, and the key that gives it."""

    key: str
    wire: Wire
    latency_given: bool


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of devices at the top, for a host, or for one device."""

    kind: str | None = None
    memory: int | Literal["unlimited"] | None = None
    speed: float | None = None


class WrittenHost(msgspec.Struct, frozen=True, kw_only=True):
    """One host, and the key path of its table."""

    path: str
    name: str
    num_devices: int | None = None
    traits: Traits = Traits()
    inside: WrittenWire | None = None
    interface: float | bool | None = None
    """A bandwidth; True: that of `between`; False: not shared; None: not said."""


class WrittenDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device, and the key path of its table."""

    path: str
    name: str
    host: str | None
    traits: Traits


class WrittenLink(msgspec.Struct, frozen=True, kw_only=True):
    """One direction between two devices, and the key paths of its ends."""

    source_key: str
    source: str
    target_key: str
    target: str
    wire: WrittenWire


class WrittenCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a cluster file can say; None is what it does not say."""

    where: str
    """The file, for errors."""
    name: str
    num_hosts: int | None = None
    devices_per_host: int | None = None
    traits: Traits = Traits()
    inside: WrittenWire | None = None
    between: WrittenWire | None = None
    interface: float | bool | None = None
    hosts: tuple[WrittenHost, ...] = ()
    devices: tuple[WrittenDevice, ...] = ()
    links: tuple[WrittenLink, ...] = ()
    assumptions: tuple[str, ...] = ()
    probed: Probed | None = None

    def at(self, key: str) -> str:
        """Where a key is, for errors."""
        return f"{self.where}, at {key}" if self.where else key
