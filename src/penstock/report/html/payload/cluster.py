"""The data of a cluster: hosts, devices, and the links in use."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.cluster import Cluster, Wire
from penstock.program import is_send
from penstock.report.subject import ReportSubject

MAX_DEVICES = 256
"""For larger clusters only the used devices are drawn."""


def cluster_data(cluster: Cluster, items: Sequence[ReportSubject]) -> dict[str, Any]:
    """The cluster and the links that the timelines use. Links refer to devices by their index in this data."""
    used = {name for item in items for name in item.plan.devices}
    kept = [
        index
        for index, device in enumerate(cluster.devices)
        if cluster.num_devices <= MAX_DEVICES or device.name in used
    ]
    new_index = {cluster.devices[index].name: number for number, index in enumerate(kept)}
    host_index = {host.name: number for number, host in enumerate(cluster.hosts)}
    links = sorted({link for item in items for link in _links(item)})
    return {
        "name": cluster.name,
        "numDevices": cluster.num_devices,
        "between": _wire(cluster.between),
        "hosts": [
            {"name": host.name, "inside": _wire(host.inside), "interface": host.interface_bandwidth}
            for host in cluster.hosts
        ],
        "devices": [
            {
                "name": device.name,
                "host": host_index[device.host],
                "kind": device.kind,
                "memory": device.memory_bytes,
                "speed": device.speed,
            }
            for device in (cluster.devices[index] for index in kept)
        ],
        "links": [
            {
                "source": new_index[source],
                "target": new_index[target],
                "bandwidth": _finite(float(cluster.bandwidth[cluster.index[source], cluster.index[target]])),
                "latency": float(cluster.latency_s[cluster.index[source], cluster.index[target]]),
            }
            for source, target in links
            if source in new_index and target in new_index
        ],
    }


def rings(item: ReportSubject) -> list[dict[str, Any]]:
    """The reductions and all-gathers of a plan: their devices in ring order, and the bytes that each of them sends."""
    if item.costs is None:
        return []
    return [
        {
            "devices": [item.costs.cluster.devices[device].name for device in entry.ring.devices],
            "bytes": entry.ring.sent_bytes,
        }
        for entry in item.costs.collectives
    ]


def ties(item: ReportSubject) -> dict[int, tuple[int, ...]] | None:
    """The stages behind each all-reduce of shared parameters; None where the costs are not known."""
    if item.costs is None:
        return None
    return {reduction.number: reduction.stages for reduction in item.costs.reductions if reduction.is_tie}


def _links(item: ReportSubject) -> set[tuple[str, str]]:
    program = item.timeline.program
    sends = np.flatnonzero(is_send(program.kind))
    pairs = np.unique(np.column_stack([program.device_of[sends], program.peer[sends]]), axis=0)
    links = {(program.devices[source], program.devices[target]) for source, target in pairs.tolist()}
    for ring in rings(item):
        links |= set(zip(ring["devices"], ring["devices"][1:] + ring["devices"][:1], strict=True))
    return links


def _wire(wire: Wire) -> dict[str, float | None]:
    return {"bandwidth": _finite(wire.bandwidth), "latency": wire.latency_s}


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if np.isfinite(value) else None
