"""An order of the devices that does not depend on their numbering, so that equivalent searches start alike.

Colour refinement distinguishes devices by their properties (kind, speed, memory, their host's interface) and then,
repeatedly, by their links to devices of each colour. Hosts, and devices within a host, are sorted by colour; devices
with the same colour keep their order. Cost: O(D^2 log D) per round for D devices, at most D rounds. Above
`MAX_DEVICES` devices the order is not changed.
"""

from dataclasses import replace

import msgspec
import numpy as np

from penstock.arrays import Ints
from penstock.cluster import Cluster
from penstock.planners.problem import Problem

MAX_DEVICES = 128


def in_canonical_order(problem: Problem) -> Problem:
    """The same problem with the devices in canonical order; unchanged if it uses only the first of them."""
    cluster = problem.cluster
    if problem.pipeline_depth is not None or cluster.num_devices > MAX_DEVICES:
        return problem
    order = canonical_order(cluster)
    if order == list(range(cluster.num_devices)):
        return problem
    devices = tuple(cluster.devices[device] for device in order)
    return replace(problem, cluster=msgspec.structs.replace(cluster, devices=devices))


def canonical_order(cluster: Cluster) -> list[int]:
    """Indices of the devices in an order that depends only on their properties and links.

    >>> from penstock.cluster.load import load_cluster
    >>> canonical_order(load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s"))
    [0, 1, 2, 3]
    """
    colour = _colours(cluster)
    host = cluster.host_index.tolist()
    by_host: dict[int, list[int]] = {}
    for device in range(cluster.num_devices):
        by_host.setdefault(host[device], []).append(int(colour[device]))
    rank_of_host = {number: rank for rank, number in enumerate(by_host)}
    return sorted(
        range(cluster.num_devices),
        key=lambda device: (sorted(by_host[host[device]]), rank_of_host[host[device]], int(colour[device]), device),
    )


def _colours(cluster: Cluster) -> Ints:
    """A colour for every device; devices that refinement cannot distinguish have the same one."""
    num = cluster.num_devices
    looks = [
        (device.kind, device.speed, device.memory_bytes or 0, cluster.hosts[host].interface_bandwidth or 0.0)
        for device, host in zip(cluster.devices, cluster.host_index.tolist(), strict=True)
    ]
    ranks = {look: rank for rank, look in enumerate(sorted(set(looks)))}
    colour = np.array([ranks[look] for look in looks], dtype=np.int64)
    same_host = cluster.host_index[:, None] == cluster.host_index[None, :]
    matrices = (cluster.bandwidth, cluster.bandwidth.T, cluster.latency_s, cluster.latency_s.T, same_host)
    pairs = np.stack([np.where(np.eye(num, dtype=bool), 0.0, matrix).ravel() for matrix in matrices], axis=1)
    link = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(num, num)
    for _ in range(num):
        seen = np.sort(link * num + colour[None, :], axis=1)
        table = np.concatenate([colour[:, None], seen], axis=1)
        refined = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
        if len(np.unique(refined)) == len(np.unique(colour)):
            break
        colour = refined
    return colour
