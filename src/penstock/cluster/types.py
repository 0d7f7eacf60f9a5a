"""A cluster: devices, hosts and the links between them."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from penstock import io
from penstock.arrays import Floats
from penstock.cluster.provenance import Probed
from penstock.errors import InputError

MAX_MATRIX_DEVICES = 8192
"""A matrix of links has the square of this many entries, 8 bytes each."""

BytesPerSecond = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]

MAX_MEMORY_BYTES = 2**60


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one direction of a connection can do."""

    bandwidth: BytesPerSecond
    latency_s: Seconds = 0.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise ValueError("bandwidth must be above zero")
        if not 0 <= self.latency_s < math.inf:
            raise ValueError("latency must be finite and not negative")


NEVER_USED = Wire(bandwidth=1e9)
"""Stands where no two devices need a wire and none is known: it is neither written nor shown."""


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine with devices. Its own devices reach each other over `inside`."""

    name: str
    inside: Wire
    interface_bandwidth: BytesPerSecond | None = None
    """If given: its devices share one network interface of this many bytes a second in each direction."""

    def __post_init__(self) -> None:
        if self.interface_bandwidth is not None and not self.interface_bandwidth > 0:
            raise ValueError("interface_bandwidth must be above zero")


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that computes one action at a time."""

    name: str
    host: str
    kind: str
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMORY_BYTES)] | None = None
    """None: no limit is known."""
    speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Relative to other devices of its kind: 0.5 takes twice as long."""

    def __post_init__(self) -> None:
        if not self.kind:
            raise ValueError(f"device {self.name!r} needs a kind")
        if not 0 < self.speed < math.inf:
            raise ValueError("speed must be finite and above zero")
        if self.memory_bytes is not None and not 0 <= self.memory_bytes <= MAX_MEMORY_BYTES:
            raise ValueError("memory_bytes must not be negative, nor above 2**60")


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One direction between two devices that differs from what their hosts say."""

    source: str
    target: str
    wire: Wire


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """Devices on hosts. A link is what `links` says of it, else the host's `inside`, else `between`."""

    name: str
    hosts: tuple[Host, ...]
    devices: tuple[Device, ...]
    between: Wire
    links: tuple[Link, ...] = ()
    assumptions: tuple[str, ...] = ()
    """What the source did not say and was assumed, for people."""
    probed: Probed | msgspec.UnsetType = msgspec.UNSET
    """When and how it was measured, if it was."""

    def __post_init__(self) -> None:
        if not self.devices:
            raise ValueError("a cluster needs at least one device")
        hosts = _unique([host.name for host in self.hosts], "host")
        names = _unique([device.name for device in self.devices], "device")
        for device in self.devices:
            if device.host not in hosts:
                raise ValueError(f"device {device.name!r} is on host {device.host!r}, which is not there")
        for link in self.links:
            for end in (link.source, link.target):
                if end not in names:
                    raise ValueError(f"a link names device {end!r}, which is not there")
            if link.source == link.target:
                raise ValueError(f"a link from device {link.source!r} to itself")
        _unique([f"{link.source!r} -> {link.target!r}" for link in self.links], "link")
        rows = () if isinstance(self.probed, msgspec.UnsetType) else self.probed.residuals
        if rows and len(rows) != len(self.devices):
            raise ValueError("residuals must have a row and a column for each device")

    @property
    def num_devices(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    @cached_property
    def index(self) -> dict[str, int]:
        """The place of each device, by name."""
        return {device.name: place for place, device in enumerate(self.devices)}

    @cached_property
    def bandwidth(self) -> Floats:
        """Bytes per second from each device (row) to each other (column), interfaces left aside; inf to itself."""
        matrix = self._matrix(lambda wire: wire.bandwidth)
        np.fill_diagonal(matrix, np.inf)
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def latency_s(self) -> Floats:
        """Seconds from each device (row) to each other (column); 0 to itself."""
        matrix = self._matrix(lambda wire: wire.latency_s)
        np.fill_diagonal(matrix, 0.0)
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def host_index(self) -> npt.NDArray[np.int64]:
        """The place in `hosts` of each device's host."""
        places = {host.name: place for place, host in enumerate(self.hosts)}
        return np.array([places[device.host] for device in self.devices], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """A short name for the contents, what was assumed and how it was measured left aside."""
        return io.digest(msgspec.structs.replace(self, assumptions=(), probed=msgspec.UNSET))

    def _check_matrix(self) -> None:
        if self.num_devices > MAX_MATRIX_DEVICES:
            what = f"{self.num_devices:,} devices are too many to plan for: at most {MAX_MATRIX_DEVICES:,}"
            raise InputError(what, hint="Plan for a part of the cluster.")

    def _matrix(self, value: Callable[[Wire], float]) -> Floats:
        self._check_matrix()
        host = self.host_index
        inside = np.array([value(item.inside) for item in self.hosts])
        matrix = np.where(host[:, None] == host[None, :], inside[host][:, None], value(self.between))
        for link in self.links:
            matrix[self.index[link.source], self.index[link.target]] = value(link.wire)
        return matrix


def _unique(names: list[str], what: str) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise ValueError(f"a {what} needs a name that is not empty")
        if name in seen:
            raise ValueError(f"{what} {name!r} is there twice")
        seen.add(name)
    return seen
