"""What one measured iteration says about the speeds of devices and links.

A device's slowness is the time of its compute actions relative to the prediction for the declared cluster. A link's is
that of its messages, without latency. Only messages that a device waited for have a known time; the others give an
upper limit. An all-reduce gives one value for all links of its ring.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.program import Kind
from penstock.simulate import Evaluation
from penstock.timeline import Timeline, awaited_transfers, transfer_seconds

MIN_BYTES_SHARE = 0.2
"""A message that mostly consists of latency says little about bandwidth."""

MIN_BYTES_S = 1e-4
"""The same of a message whose bytes take less."""
RESOLUTION_S = 5e-4
"""An arrival may be noticed so much later than it is."""

Link = tuple[str, str]
"""Sending and receiving device."""

_REDUCTIONS = (Kind.REDUCE_GRAD, Kind.REDUCE_TIE)


class LinkSlowness(NamedTuple):
    """How many times as long as predicted the bytes on a link took."""

    slowness: float
    is_exact: bool
    """Whether devices waited for the messages. Otherwise the slowness is at most this."""


@dataclass(frozen=True)
class Measurement:
    """One measured iteration, relative to the prediction for the declared cluster.

    Attributes:
        iteration_s: Its seconds.
        devices: Slowness of the devices that computed.
        links: Slowness of the links that carried messages.
        rings: Slowness of awaited all-reduces, by the links of their ring.
    """

    iteration_s: float
    devices: Mapping[str, float]
    links: Mapping[Link, LinkSlowness]
    rings: Mapping[tuple[Link, ...], float]


def measure(expected: Evaluation, measured: Timeline) -> Measurement:
    """Compare a measured iteration with the prediction.

    Args:
        expected: The plan that ran, evaluated on the declared cluster.
        measured: The measured timeline of its program.
    """
    taken_s = transfer_seconds(measured)
    awaited = set(awaited_transfers(measured, taken_s))
    return Measurement(
        measured.iteration_s,
        _devices(expected.timeline, measured),
        _links(expected, taken_s, awaited),
        _rings(expected, taken_s, awaited),
    )


def _devices(expected: Timeline, measured: Timeline) -> dict[str, float]:
    program = expected.program
    compute = np.flatnonzero(expected.is_compute)
    owner = program.device_of[compute]
    planned_s = np.bincount(owner, (expected.end_s - expected.start_s)[compute], len(program.devices))
    taken_s = np.bincount(owner, (measured.end_s - measured.start_s)[compute], len(program.devices))
    return {
        name: float(taken_s[number] / planned_s[number])
        for number, name in enumerate(program.devices)
        if planned_s[number] > 0 and taken_s[number] > 0
    }


def _links(expected: Evaluation, taken_s: Floats, awaited: set[int]) -> dict[Link, LinkSlowness]:
    program, costs = expected.program, expected.costs
    index = costs.cluster.index
    position = np.array([index[name] for name in program.devices])
    sends = np.flatnonzero([Kind(kind).is_send for kind in program.kind])
    planned_s = (expected.timeline.end_s - expected.timeline.start_s)[sends]
    latency_s = costs.cluster.latency_s[position[program.device_of[sends]], position[program.peer[sends]]]
    by_link: dict[Link, list[tuple[bool, float, float]]] = {}
    for send, planned, latency in zip(sends.tolist(), planned_s.tolist(), latency_s.tolist(), strict=True):
        if planned - latency > max(MIN_BYTES_S, MIN_BYTES_SHARE * planned):
            ends = program.devices[int(program.device_of[send])], program.devices[int(program.peer[send])]
            row = (send in awaited, planned - latency, _noticed(float(taken_s[send]) - latency, planned - latency))
            by_link.setdefault(ends, []).append(row)
    return {link: slowness for link, rows in by_link.items() if (slowness := _slowness(rows)) is not None}


def _noticed(taken_s: float, planned_s: float) -> float:
    """The time that a transfer took at least, given that its arrival may have been noticed late."""
    return max(0.0, min(taken_s, max(planned_s, taken_s - RESOLUTION_S)))


def _slowness(rows: list[tuple[bool, float, float]]) -> LinkSlowness | None:
    """That of the awaited messages, otherwise the smallest upper limit."""
    exact = [(planned, taken) for is_awaited, planned, taken in rows if is_awaited]
    if exact and (taken_s := sum(taken for _, taken in exact)) > 0:
        return LinkSlowness(taken_s / sum(planned for planned, _ in exact), is_exact=True)
    limits = [taken / planned for _, planned, taken in rows if taken > 0]
    return LinkSlowness(min(limits), is_exact=False) if limits else None


def _rings(expected: Evaluation, taken_s: Floats, awaited: set[int]) -> dict[tuple[Link, ...], float]:
    program, costs = expected.program, expected.costs
    names = [device.name for device in costs.cluster.devices]
    ring_of = {(item.is_tie, item.number): item.ring for item in costs.reductions}
    slowness: dict[tuple[Link, ...], list[float]] = {}
    for action in sorted(awaited):
        kind = Kind(int(program.kind[action]))
        if kind not in _REDUCTIONS:
            continue
        ring = ring_of[kind is Kind.REDUCE_TIE, int(program.stage[action])]
        planned_s = float(expected.timeline.end_s[action] - expected.timeline.start_s[action]) - ring.latency_s
        if planned_s > max(MIN_BYTES_S, MIN_BYTES_SHARE * ring.latency_s):
            links = tuple((names[one], names[other]) for one, other in ring.links)
            slowness.setdefault(links, []).append(
                _noticed(float(taken_s[action]) - ring.latency_s, planned_s) / planned_s
            )
    return {links: float(np.median(values)) for links, values in slowness.items()}
