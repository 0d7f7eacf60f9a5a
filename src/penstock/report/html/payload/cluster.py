"""A cluster as a web page draws it: hosts, devices, and the links that carry something."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.cluster import Cluster, Wire
from penstock.program import SEND_KINDS
from penstock.report.subject import Shown

MOST_DEVICES = 256
"""Of larger clusters only the devices that are used are drawn."""


def cluster_data(cluster: Cluster, items: Sequence[Shown]) -> dict[str, Any]:
    """The cluster, and the links that the timelines use; numbers of devices are their places in this list."""
    used = {name for item in items for name in item.plan.devices}
    kept = [
        place
        for place, device in enumerate(cluster.devices)
        if cluster.num_devices <= MOST_DEVICES or device.name in used
    ]
    number = {cluster.devices[place].name: at for at, place in enumerate(kept)}
    host_number = {host.name: at for at, host in enumerate(cluster.hosts)}
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
                "host": host_number[device.host],
                "kind": device.kind,
                "memory": device.memory_bytes,
                "speed": device.speed,
            }
            for device in (cluster.devices[place] for place in kept)
        ],
        "links": [
            {
                "source": number[source],
                "target": number[target],
                "bandwidth": _finite(float(cluster.bandwidth[cluster.index[source], cluster.index[target]])),
                "latency": float(cluster.latency_s[cluster.index[source], cluster.index[target]]),
            }
            for source, target in links
            if source in number and target in number
        ],
    }


def rings(item: Shown) -> list[dict[str, Any]]:
    """The all-reduces of a plan: who takes part, in ring order, and what each of them sends."""
    if item.costs is None:
        return []
    return [
        {
            "devices": [item.costs.cluster.devices[device].name for device in reduction.ring.devices],
            "bytes": reduction.ring.sent_bytes,
        }
        for reduction in item.costs.reductions
    ]


def ties(item: Shown) -> dict[int, tuple[int, ...]] | None:
    """For each sum over shared parameters the stages that share them; None where the file alone does not say."""
    if item.costs is None:
        return None
    return {found.number: found.stages for found in item.costs.reductions if found.is_tie}


def _links(item: Shown) -> set[tuple[str, str]]:
    program = item.timeline.program
    sends = np.flatnonzero(np.isin(program.kind, SEND_KINDS))
    pairs = np.unique(np.column_stack([program.device_of[sends], program.peer[sends]]), axis=0)
    found = {(program.devices[source], program.devices[target]) for source, target in pairs.tolist()}
    for ring in rings(item):
        found |= set(zip(ring["devices"], ring["devices"][1:] + ring["devices"][:1], strict=True))
    return found


def _wire(wire: Wire) -> dict[str, float | None]:
    return {"bandwidth": _finite(wire.bandwidth), "latency": wire.latency_s}


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if np.isfinite(value) else None
