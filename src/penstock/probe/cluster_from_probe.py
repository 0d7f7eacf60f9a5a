"""From what a probe found to a cluster: wires that agree become one, the others stay links of their own."""

import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from penstock.cluster import Cluster, Device, Probed, Wire, assemble
from penstock.probe.relative_speeds import speeds_of
from penstock.probe.shared_interfaces import shared_interfaces
from penstock.probe.types import Findings, LinkFound, Pair, Seat

ALIKE = 1.1
"""Bandwidths of which the largest is at most so many times the least are taken as one: their median."""
ALIKE_LATENCY = 1.0
ALIKE_LATENCY_S = 100e-6
"""And latencies that are within this part of the median, or within so much."""


def conclude(findings: Findings, name: str, date: datetime | None = None) -> Cluster:
    """The cluster that was measured."""
    seats = findings.seats
    host_of = [seat.host for seat in seats]
    is_inside = [host_of[link.source] == host_of[link.target] for link in findings.links]
    across = [link for link, inside in zip(findings.links, is_inside, strict=True) if not inside]
    within = [link for link, inside in zip(findings.links, is_inside, strict=True) if inside]
    return assemble(
        name,
        _devices(seats, _device_names(seats)),
        wires_of(across) | wires_of(within),
        interfaces={host: _rounded(rate) for host, rate in shared_interfaces(seats, findings.crowds).items()},
        assumptions=_assumptions(findings),
        probed=Probed(
            date=(date or datetime.now(UTC)).replace(microsecond=0),
            backend=findings.backend,
            rounds=findings.num_rounds,
            residuals=_residuals(findings),
        ),
    )


def _device_names(seats: Sequence[Seat]) -> list[str]:
    seen: Counter[str] = Counter()
    names = []
    for seat in seats:
        names.append(f"{seat.host}.d{seen[seat.host]}")
        seen[seat.host] += 1
    return names


def _devices(seats: Sequence[Seat], names: Sequence[str]) -> tuple[Device, ...]:
    sharing = Counter(seat.computer for seat in seats if seat.computer)

    def memory(seat: Seat) -> int | None:
        if seat.memory_bytes is None:
            return None
        share = seat.memory_bytes // max(1, sharing[seat.computer])
        return share // 10**8 * 10**8 if share >= 10**9 else share

    return tuple(
        Device(name=name, host=seat.host, kind=seat.kind, memory_bytes=memory(seat), speed=speed)
        for name, seat, speed in zip(names, seats, speeds_of(seats), strict=True)
    )


def wires_of(links: Sequence[LinkFound]) -> dict[Pair, Wire]:
    """The wire of each link. Bandwidths that are alike become their median, and so do latencies among them."""
    found: dict[Pair, Wire] = {}
    waiting = sorted(links, key=lambda link: link.fit.bandwidth)
    while waiting:
        # The most that are alike first: one that lies beside them does not draw a line through the midst of them.
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
            found[link.source, link.target] = Wire(bandwidth=bandwidth, latency_s=latency_s)
    return found


def _residuals(findings: Findings) -> tuple[tuple[float, ...], ...]:
    rows = [[0.0] * len(findings.seats) for _ in findings.seats]
    for link in findings.links:
        rows[link.source][link.target] = round(link.fit.residual, 4)
    return tuple(tuple(row) for row in rows)


def _assumptions(findings: Findings) -> tuple[str, ...]:
    notes = [
        "Latencies are half of the time of an empty message there and back: the two directions are taken as equal.",
    ]
    if any(seat.computer for seat in findings.seats):
        notes.append("The memory of processes without a GPU is what was free, over the ranks of a computer.")
    hosts = [seat.host for seat in findings.seats]
    if findings.backend == "gloo" and len(set(hosts)) < len(hosts):
        notes.append(
            "Links inside a host are gloo's; a pipeline hands tensors over in shared memory there, which is faster."
        )
    return (*notes, *findings.notes)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
