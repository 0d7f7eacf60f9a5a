"""An order of the devices that does not depend on how they are numbered, so that a search begins the same way.

Devices are told apart by what they are (kind, speed, memory, their host's interface) and by their links to devices that
can be told apart already, again and again (colour refinement). Hosts, and devices within a host, come in the order of
their colours; those that look alike from everywhere stay as they are. Cost: O(D^2 log D) a round for D devices, at most
D rounds; above `MOST_DEVICES` the order is left as it is.
"""

from dataclasses import replace

import msgspec
import numpy as np

from penstock.arrays import Ints
from penstock.cluster import Cluster
from penstock.planners.problem import Problem

MOST_DEVICES = 128


def in_canonical_order(problem: Problem) -> Problem:
    """The same problem with the devices in canonical order; as it is if only the first of them are to be used."""
    cluster = problem.cluster
    if problem.pipeline_depth is not None or cluster.num_devices > MOST_DEVICES:
        return problem
    order = canonical_order(cluster)
    if order == list(range(cluster.num_devices)):
        return problem
    devices = tuple(cluster.devices[place] for place in order)
    return replace(problem, cluster=msgspec.structs.replace(cluster, devices=devices))


def canonical_order(cluster: Cluster) -> list[int]:
    """The devices by number, in an order that follows from what they are and how they are linked.

    >>> from penstock.cluster.load import load_cluster
    >>> canonical_order(load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s"))
    [0, 1, 2, 3]
    """
    colour = _colours(cluster)
    host = cluster.host_index.tolist()
    by_host: dict[int, list[int]] = {}
    for place in range(cluster.num_devices):
        by_host.setdefault(host[place], []).append(int(colour[place]))
    place_of_host = {number: turn for turn, number in enumerate(by_host)}
    return sorted(
        range(cluster.num_devices),
        key=lambda place: (sorted(by_host[host[place]]), place_of_host[host[place]], int(colour[place]), place),
    )


def _colours(cluster: Cluster) -> Ints:
    """Equal numbers for devices that cannot be told apart."""
    num = cluster.num_devices
    looks = [
        (device.kind, device.speed, device.memory_bytes or 0, cluster.hosts[home].interface_bandwidth or 0.0)
        for device, home in zip(cluster.devices, cluster.host_index.tolist(), strict=True)
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
