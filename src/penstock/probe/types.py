"""What a probe finds, as plain values that go from rank to rank as JSON."""

import msgspec

Pair = tuple[int, int]
"""Two ranks: of a link the one that sends comes first."""


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: the device that it drives, and where it is."""

    rank: int
    host: str
    kind: str
    memory_bytes: int | None
    """What is there for the processes of this computer; None if that cannot be told."""
    computer: str = ""
    """Tells whose memory that is: ranks on one computer share it. Empty for memory of the device's own."""
    flops_per_s: float = 0.0
    """What it reached in the kernel; 0 before that was measured."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A link as `seconds = latency + bytes / bandwidth`, and how well that describes what was measured."""

    bandwidth: float
    latency_s: float
    residual: float
    """Root of the mean square of (measured - fitted) / fitted."""
    bandwidth_error: float
    """Standard error of the bandwidth, as a fraction of it."""


class LinkFound(msgspec.Struct, frozen=True, kw_only=True):
    """One direction between two ranks."""

    source: int
    target: int
    fit: Fit
    num_bytes: int
    """Sent to find this out."""
    in_company: bool = False
    """Whether other pairs were measured at the same time."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """One of several transfers at the same time, and the rate that it has alone."""

    source: int
    target: int
    alone: float
    busy: float = 0.0
    """The rate beside the others; 0 before that was measured."""


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """Several transfers at once that leave a host, or enter it."""

    host: str
    outgoing: bool
    flows: tuple[Flow, ...]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """All that a probe has measured."""

    seats: tuple[Seat, ...]
    links: tuple[LinkFound, ...]
    crowds: tuple[Crowd, ...]
    backend: str
    num_rounds: int
    num_bytes: int
    seconds: float
    notes: tuple[str, ...] = ()


def hosts_of(seats: tuple[Seat, ...]) -> dict[str, list[int]]:
    """The ranks of each host, hosts in the order of their first rank."""
    found: dict[str, list[int]] = {}
    for seat in seats:
        found.setdefault(seat.host, []).append(seat.rank)
    return found
