"""The cluster of a probe's result: links with similar measurements share a wire, the others stay separate."""

import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec.structs import replace

from penstock.cluster import Cluster, Device, ProbeRecord, Wire, cluster_from_wires
from penstock.probe.relative_speeds import speeds_of
from penstock.probe.shared_interfaces import shared_interfaces
from penstock.probe.types import MeasuredLink, Pair, ProbeResult, RankInfo

ALIKE = 1.1
"""Bandwidths whose largest is at most this multiple of the smallest are replaced by their median."""
ALIKE_LATENCY = 1.0
ALIKE_LATENCY_S = 100e-6
"""Latencies within this fraction of the median, or within this difference, are replaced by the median."""


def build_cluster(result: ProbeResult, name: str, date: datetime | None = None) -> Cluster:
    """Build the measured cluster.

    Args:
        result: Result of the probe.
        name: Name of the cluster.
        date: Time of the probe. None: now.
    """
    rank_infos = result.rank_infos
    host_of = [info.host for info in rank_infos]
    is_inside = [host_of[link.source] == host_of[link.target] for link in result.links]
    across = [link for link, inside in zip(result.links, is_inside, strict=True) if not inside]
    within = [link for link, inside in zip(result.links, is_inside, strict=True) if inside]
    cluster = cluster_from_wires(
        name,
        _devices(rank_infos, _device_names(rank_infos)),
        wires_of(across) | wires_of(within),
        interfaces={host: _rounded(rate) for host, rate in shared_interfaces(rank_infos, result.flow_sets).items()},
        assumptions=_assumptions(result),
        probed=ProbeRecord(
            date=(date or datetime.now(UTC)).replace(microsecond=0),
            backend=result.backend,
            rounds=result.num_rounds,
            residuals=_residuals(result),
        ),
    )
    rounded = (
        replace(table, seconds=tuple(_rounded(seconds) for seconds in table.seconds)) for table in result.all_reduces
    )
    return replace(cluster, all_reduces=tuple(rounded))


def _device_names(rank_infos: Sequence[RankInfo]) -> list[str]:
    seen: Counter[str] = Counter()
    names = []
    for info in rank_infos:
        names.append(f"{info.host}.d{seen[info.host]}")
        seen[info.host] += 1
    return names


def _devices(rank_infos: Sequence[RankInfo], names: Sequence[str]) -> tuple[Device, ...]:
    sharing = Counter(info.machine for info in rank_infos if info.machine)

    def memory(info: RankInfo) -> int | None:
        if info.memory_bytes is None:
            return None
        share = info.memory_bytes // max(1, sharing[info.machine])
        return share // 10**8 * 10**8 if share >= 10**9 else share

    return tuple(
        Device(name=name, host=info.host, kind=info.kind, memory_bytes=memory(info), speed=speed)
        for name, info, speed in zip(names, rank_infos, speeds_of(rank_infos), strict=True)
    )


def wires_of(links: Sequence[MeasuredLink]) -> dict[Pair, Wire]:
    """Return the wire of each link. Similar bandwidths, and similar latencies among them, become their median."""
    wires: dict[Pair, Wire] = {}
    waiting = sorted(links, key=lambda link: link.fit.bandwidth)
    while waiting:
        # The largest group of similar links first, so that an outlier does not divide it.
        rates = np.array([link.fit.bandwidth for link in waiting])
        ends = np.searchsorted(rates, ALIKE * rates, side="right")
        start = int(np.argmax(ends - np.arange(len(rates))))
        alike = waiting[start : ends[start]]
        del waiting[start : ends[start]]
        bandwidth = _rounded(statistics.median(link.fit.bandwidth for link in alike))
        middle_s = statistics.median(link.fit.latency_s for link in alike)
        for link in alike:
            off_s = abs(link.fit.latency_s - middle_s)
            is_like = off_s <= max(ALIKE_LATENCY_S, ALIKE_LATENCY * middle_s)
            latency_s = _rounded(middle_s if is_like else link.fit.latency_s)
            wires[link.source, link.target] = Wire(bandwidth=bandwidth, latency_s=latency_s)
    return wires


def _residuals(result: ProbeResult) -> tuple[tuple[float, ...], ...]:
    rows = [[0.0] * len(result.rank_infos) for _ in result.rank_infos]
    for link in result.links:
        rows[link.source][link.target] = round(link.fit.residual, 4)
    return tuple(tuple(row) for row in rows)


def _assumptions(result: ProbeResult) -> tuple[str, ...]:
    notes = [
        "Latencies are half the round-trip time of an empty message: both directions are assumed to be equal.",
    ]
    if any(info.machine for info in result.rank_infos):
        notes.append("The memory of CPU devices is the free memory of the machine divided by its ranks.")
    hosts = [info.host for info in result.rank_infos]
    if result.backend == "gloo" and len(set(hosts)) < len(hosts):
        notes.append(
            "Links inside a host are measured with gloo; a pipeline uses shared memory there, which is faster."
        )
    return (*notes, *result.notes)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
