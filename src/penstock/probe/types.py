"""Results of a probe, as plain values that ranks exchange as JSON."""

import msgspec

from penstock.profile import MeasuredAllReduce

Pair = tuple[int, int]
"""Two ranks; for a link, the sender first."""


class RankInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The device of one rank.

    Attributes:
        rank: The rank.
        host: Name of its host.
        kind: Device kind.
        memory_bytes: Memory available to all ranks of the machine, or of the GPU; None if unknown.
        machine: Id of the machine whose memory the ranks share. Empty if the device has its own memory.
        flops_per_s: Measured rate of the kernel; 0 before the measurement.
    """

    rank: int
    host: str
    kind: str
    memory_bytes: int | None
    machine: str = ""
    flops_per_s: float = 0.0


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A link as `seconds = latency + bytes / bandwidth`, and the quality of the fit.

    Attributes:
        bandwidth: Bytes per second.
        latency_s: Time of an empty message.
        residual: Root mean square of (measured - fitted) / fitted.
        bandwidth_error: Relative standard error of the bandwidth.
    """

    bandwidth: float
    latency_s: float
    residual: float
    bandwidth_error: float


class MeasuredLink(msgspec.Struct, frozen=True, kw_only=True):
    """One measured direction between two ranks.

    Attributes:
        source: Sending rank.
        target: Receiving rank.
        fit: The fit.
        num_bytes: Bytes sent for the measurement.
        is_concurrent: Whether other pairs were measured at the same time.
    """

    source: int
    target: int
    fit: Fit
    num_bytes: int
    is_concurrent: bool = False


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """One of several concurrent transfers.

    Attributes:
        source: Sending rank.
        target: Receiving rank.
        alone: Rate without other transfers.
        busy: Rate with the other transfers; 0 before the measurement.
    """

    source: int
    target: int
    alone: float
    busy: float = 0.0


class FlowSet(msgspec.Struct, frozen=True, kw_only=True):
    """Concurrent transfers that leave a host (`outgoing`), or enter it."""

    host: str
    outgoing: bool
    flows: tuple[Flow, ...]


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of a probe."""

    rank_infos: tuple[RankInfo, ...]
    links: tuple[MeasuredLink, ...]
    flow_sets: tuple[FlowSet, ...]
    backend: str
    num_rounds: int
    num_bytes: int
    seconds: float
    notes: tuple[str, ...] = ()
    all_reduces: tuple[MeasuredAllReduce, ...] = ()


def hosts_of(rank_infos: tuple[RankInfo, ...]) -> dict[str, list[int]]:
    """Return the ranks of each host, hosts in the order of their first rank."""
    ranks: dict[str, list[int]] = {}
    for info in rank_infos:
        ranks.setdefault(info.host, []).append(info.rank)
    return ranks
