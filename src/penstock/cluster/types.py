"""`Cluster` and its parts: devices, hosts and the links between them."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from penstock import io
from penstock.arrays import Floats
from penstock.cluster.provenance import ProbeRecord
from penstock.errors import InputError
from penstock.names import check_name_lengths
from penstock.profile import MeasuredAllReduce

MAX_MATRIX_DEVICES = 8192
"""A link matrix has the square of this number of entries, 8 bytes each."""

BytesPerSecond = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]

MAX_MEMORY_BYTES = 2**60


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bandwidth and latency of one direction of a connection.

    A transfer takes `latency_s + bytes / bandwidth` seconds.

    Attributes:
        bandwidth: Bytes per second; `math.inf` for no limit.
        latency_s: Latency in seconds.

    Raises:
        ValueError: The bandwidth is not positive, or the latency is negative or infinite.

    Example:
        >>> Wire(bandwidth=25e9, latency_s=5e-6).bandwidth
        25000000000.0
    """

    bandwidth: BytesPerSecond
    latency_s: Seconds = 0.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise ValueError("bandwidth must be positive")
        if not 0 <= self.latency_s < math.inf:
            raise ValueError("latency must be finite and not negative")


NEVER_USED = Wire(bandwidth=1e9)
"""Placeholder where no two devices need a wire and none is specified. It is neither written nor shown."""


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine with devices.

    Attributes:
        name: Unique name.
        inside: Connection between two devices of this host.
        interface_bandwidth: Bytes per second, in each direction, of the network interface that all devices of the
            host share. None: they do not share one.

    Raises:
        ValueError: The interface bandwidth is not positive.

    Example:
        >>> Host(name="node0", inside=Wire(bandwidth=100e9), interface_bandwidth=12.5e9).name
        'node0'
    """

    name: str
    inside: Wire
    interface_bandwidth: BytesPerSecond | None = None

    def __post_init__(self) -> None:
        if self.interface_bandwidth is not None and not self.interface_bandwidth > 0:
            raise ValueError("interface_bandwidth must be positive")


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device, which computes one action at a time.

    Attributes:
        name: Unique name.
        host: Name of its host.
        kind: Device kind, such as "A100-40". Profiles have times by kind.
        memory_bytes: Memory available to training. None: no known limit.
        speed: Speed relative to other devices of the kind. A device of speed 0.5 takes twice as long.

    Raises:
        ValueError: The kind is empty, the speed is not positive and finite, or the memory is out of range.

    Example:
        >>> Device(name="node0.d0", host="node0", kind="A100-40", memory_bytes=40_000_000_000).speed
        1.0
    """

    name: str
    host: str
    kind: str
    memory_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_MEMORY_BYTES)] | None = None
    speed: Annotated[float, msgspec.Meta(gt=0)] = 1.0

    def __post_init__(self) -> None:
        if not self.kind:
            raise ValueError(f"device {self.name!r} needs a kind")
        if not 0 < self.speed < math.inf:
            raise ValueError("speed must be positive and finite")
        if self.memory_bytes is not None and not 0 <= self.memory_bytes <= MAX_MEMORY_BYTES:
            raise ValueError("memory_bytes must be 0 to 2**60")


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One direction between two devices, where it differs from the default of their hosts.

    Attributes:
        source: Name of the sending device.
        target: Name of the receiving device.
        wire: Bandwidth and latency.

    Example:
        >>> Link(source="node0.d0", target="node0.d1", wire=Wire(bandwidth=50e9)).target
        'node0.d1'
    """

    source: str
    target: str
    wire: Wire


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """Devices on hosts, and the links between them.

    The wire between two devices is the entry of `links` for the pair if there is one, else `inside` of their common
    host, else `between`. Clusters are immutable; `load_cluster` reads one.

    Attributes:
        name: Name of the cluster.
        hosts: The hosts.
        devices: The devices. Plans name them; arrays are indexed by their position here.
        between: Connection between devices of different hosts.
        links: Directed links that differ from the defaults.
        assumptions: Sentences about everything that the source does not specify and that was assumed.
        all_reduces: Measured all-reduces over devices of one host, one entry for each number of devices. Others are
            computed from the links.
        probed: When and how the cluster was measured; UNSET if it was not.

    Raises:
        ValueError: There are no devices, names are empty or duplicate, or a device or link names something that does
            not exist.

    Example:
        >>> import penstock
        >>> cluster = penstock.load_cluster("2 x 4 x V100-16 @ 100 GB/s / 1.25 GB/s")
        >>> cluster.num_devices, cluster.devices[4].name
        (8, 'h1.d0')
    """

    name: str
    hosts: tuple[Host, ...]
    devices: tuple[Device, ...]
    between: Wire
    links: tuple[Link, ...] = ()
    assumptions: tuple[str, ...] = ()
    all_reduces: tuple[MeasuredAllReduce, ...] = ()
    probed: ProbeRecord | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not self.devices:
            raise ValueError("a cluster needs at least one device")
        check_name_lengths([self.name, *(host.name for host in self.hosts)])
        check_name_lengths(name for device in self.devices for name in (device.name, device.kind))
        hosts = _unique([host.name for host in self.hosts], "host")
        names = _unique([device.name for device in self.devices], "device")
        for device in self.devices:
            if device.host not in hosts:
                raise ValueError(f"device {device.name!r} names host {device.host!r}, which does not exist")
        for link in self.links:
            for end in (link.source, link.target):
                if end not in names:
                    raise ValueError(f"a link names device {end!r}, which does not exist")
            if link.source == link.target:
                raise ValueError(f"a link connects device {link.source!r} to itself")
        _unique([f"{link.source!r} -> {link.target!r}" for link in self.links], "link")
        counts = [entry.num_devices for entry in self.all_reduces]
        if len(set(counts)) < len(counts):
            raise ValueError("all_reduces has two entries for the same number of devices")
        rows = () if isinstance(self.probed, msgspec.UnsetType) else self.probed.residuals
        if rows and len(rows) != len(self.devices):
            raise ValueError("residuals must have a row and a column for each device")

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.devices)

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each device in `devices`, by name."""
        return {device.name: position for position, device in enumerate(self.devices)}

    @cached_property
    def bandwidth(self) -> Floats:
        """Bytes per second from each device (row) to each other (column), without shared interfaces; inf to itself."""
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
        """Position in `hosts` of each device's host."""
        positions = {host.name: position for position, host in enumerate(self.hosts)}
        return np.array([positions[device.host] for device in self.devices], dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Hash of the contents, without `assumptions` and `probed`."""
        plain = msgspec.structs.replace(self, assumptions=(), probed=msgspec.UNSET)
        return io.digest(plain, without=[] if self.all_reduces else ["all_reduces"])

    def _check_matrix(self) -> None:
        if self.num_devices > MAX_MATRIX_DEVICES:
            what = f"number of devices ({self.num_devices:,}) exceeds the limit of {MAX_MATRIX_DEVICES:,}"
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
            raise ValueError(f"the name of a {what} must not be empty")
        if name in seen:
            raise ValueError(f"duplicate {what} {name!r}")
        seen.add(name)
    return seen
