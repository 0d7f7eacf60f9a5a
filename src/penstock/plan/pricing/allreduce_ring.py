"""The ring all-reduce of a group's gradients, and its two halves: a reduce-scatter and an all-gather.

A ring all-reduce of n bytes over r devices sends 2 (r-1)/r n bytes over every link of the ring, in 2 (r-1) rounds,
each of which pays the latency; the slowest link sets the pace. The ring order is chosen to make that link as fast
as possible: exactly for up to `EXACT_RING` devices or where an upper bound is met, else by local search. This ignores
shared interfaces, so the order host by host, which crosses them least, is used where it is faster with them.

The first r-1 rounds are a reduce-scatter, the last r-1 an all-gather. Each is priced as half of the all-reduce.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats
from penstock.cluster import Cluster
from penstock.profile import MeasuredAllReduce

EXACT_RING = 9
LOCAL_SEARCH_RING = 48


class InterfaceUse(NamedTuple):
    """Seconds for which the ring occupies one direction of a host's shared interface."""

    host: int
    outgoing: bool
    seconds: float


class Ring(NamedTuple):
    """Devices in ring order; every one sends to the next, the last to the first."""

    devices: tuple[int, ...]
    sent_bytes: float
    """Bytes that each device sends."""
    occupancy_s: float
    latency_s: float
    interfaces: tuple[InterfaceUse, ...]

    @property
    def links(self) -> list[tuple[int, int]]:
        """The directed links that the ring occupies."""
        return list(zip(self.devices, self.devices[1:] + self.devices[:1], strict=True))

    @property
    def half(self) -> "Ring":
        """Half of the all-reduce: a reduce-scatter, or an all-gather."""
        return Ring(
            self.devices,
            self.sent_bytes / 2,
            self.occupancy_s / 2,
            self.latency_s / 2,
            tuple(use._replace(seconds=use.seconds / 2) for use in self.interfaces),
        )


def reduce_ring(cluster: Cluster, devices: Sequence[int], num_bytes: float) -> Ring:
    """The cost of an all-reduce of `num_bytes`: as measured on the cluster, otherwise that of the best ring."""
    measured = _measured(cluster, devices, num_bytes)
    if measured is not None:
        return measured
    by_host = sorted(devices, key=lambda device: (int(cluster.host_index[device]), device))
    rings = [_priced(cluster, order, num_bytes) for order in (_best_links(cluster, by_host), by_host)]
    return min(rings, key=lambda ring: ring.occupancy_s)


def ring_in_order(cluster: Cluster, order: Sequence[int], ring: Ring, *, is_half: bool = False) -> Ring:
    """The cost of the all-reduce of `ring` with its devices in a given order; `is_half`: of half an all-reduce."""
    if tuple(order) == ring.devices:
        return ring
    size = len(order)
    sent_bytes = 2 * ring.sent_bytes if is_half else ring.sent_bytes
    found = _priced(cluster, list(order), sent_bytes * size / (2 * (size - 1)))
    return found.half if is_half else found


def reduce_line(cluster: Cluster, devices: Sequence[int]) -> tuple[float, float]:
    """The cost of an all-reduce as a constant and seconds per byte.

    For links it is exact, for measured all-reduces the line through the smallest and the largest size.
    """
    entry = measured_for(cluster, devices)
    if entry is not None:
        return entry.line
    ring = reduce_ring(cluster, devices, 1.0)
    return ring.latency_s, ring.occupancy_s


def measured_for(cluster: Cluster, devices: Sequence[int]) -> MeasuredAllReduce | None:
    """The measured all-reduces over that many devices of one host. There are none if they are on several hosts."""
    if not cluster.all_reduces or len(set(cluster.host_index[list(devices)].tolist())) > 1:
        return None
    return next((entry for entry in cluster.all_reduces if entry.num_devices == len(devices)), None)


def _measured(cluster: Cluster, devices: Sequence[int], num_bytes: float) -> Ring | None:
    entry = measured_for(cluster, devices)
    if entry is None:
        return None
    sent = 2 * (len(devices) - 1) / len(devices) * num_bytes
    return Ring(tuple(devices), sent, entry.at(num_bytes), 0.0, ())


def _priced(cluster: Cluster, order: list[int], num_bytes: float) -> Ring:
    size = len(order)
    links = list(zip(order, order[1:] + order[:1], strict=True))
    host = cluster.host_index
    leaving: dict[int, int] = {}
    entering: dict[int, int] = {}
    for source, target in links:
        if host[source] != host[target]:
            leaving[int(host[source])] = leaving.get(int(host[source]), 0) + 1
            entering[int(host[target])] = entering.get(int(host[target]), 0) + 1
    sent = 2 * (size - 1) / size * num_bytes
    rate = min(float(cluster.bandwidth[link]) for link in links)
    uses: list[InterfaceUse] = []
    for outgoing, crossings in ((True, leaving), (False, entering)):
        for index, count in sorted(crossings.items()):
            bandwidth = cluster.hosts[index].interface_bandwidth
            if bandwidth is not None:
                rate = min(rate, bandwidth / count)
                uses.append(InterfaceUse(index, outgoing, count * sent / bandwidth))
    latency = 2 * (size - 1) * max(float(cluster.latency_s[link]) for link in links)
    return Ring(tuple(order), sent, sent / rate, latency, tuple(uses))


def _best_links(cluster: Cluster, by_host: list[int]) -> list[int]:
    bandwidth = cluster.bandwidth[np.ix_(by_host, by_host)]
    host = cluster.host_index[by_host]
    order = list(range(len(by_host)))
    if len(order) > 3 and _slowest(bandwidth, order) < _bound(bandwidth, host):
        if len(order) <= EXACT_RING:
            order = _exact(bandwidth)
        elif len(order) <= LOCAL_SEARCH_RING:
            order = _improve(bandwidth, order)
    elif len(order) == 3:
        order = max([0, 1, 2], [0, 2, 1], key=lambda ring: _slowest(bandwidth, ring))
    return [by_host[index] for index in order]


def _slowest(bandwidth: Floats, order: list[int]) -> float:
    return float(bandwidth[order, order[1:] + order[:1]].min())


def _bound(bandwidth: Floats, host: npt.NDArray[np.int64]) -> float:
    """An upper bound on a ring's slowest link: every device and every host must be left and entered once."""
    others = np.where(np.eye(len(bandwidth), dtype=bool), -np.inf, bandwidth)
    bound = min(others.max(axis=0).min(), others.max(axis=1).min())
    hosts = np.unique(host)
    if len(hosts) > 1:
        for index in hosts:
            inside, outside = host == index, host != index
            bound = min(bound, bandwidth[np.ix_(inside, outside)].max(), bandwidth[np.ix_(outside, inside)].max())
    return float(bound)


def _exact(bandwidth: Floats) -> list[int]:
    """The best ring by dynamic programming over the sets of visited devices, starting at device 0."""
    size = len(bandwidth)
    best: dict[tuple[int, int], tuple[float, int]] = {(1, 0): (np.inf, -1)}
    for visited in range(1, 1 << size, 2):
        for last in range(size):
            here = best.get((visited, last))
            if here is None:
                continue
            for target in range(1, size):
                if not visited >> target & 1:
                    key = (visited | 1 << target, target)
                    slowest = min(here[0], float(bandwidth[last, target]))
                    if slowest > best.get(key, (-1.0, -1))[0]:
                        best[key] = (slowest, last)
    visited = (1 << size) - 1
    last = max(range(1, size), key=lambda end: min(best[visited, end][0], float(bandwidth[end, 0])))
    order = []
    while last >= 0:
        order.append(last)
        visited, last = visited ^ 1 << last, best[visited, last][1]
    return order[::-1]


def _improve(bandwidth: Floats, order: list[int]) -> list[int]:
    """Move single devices to better positions while that speeds up the slowest link or leaves fewer such links."""

    def value(ring: list[int]) -> tuple[float, int]:
        speeds = bandwidth[ring, ring[1:] + ring[:1]]
        return float(speeds.min()), -int((speeds == speeds.min()).sum())

    current = value(order)
    improved = True
    while improved:
        improved = False
        for source in range(len(order)):
            rest = order[:source] + order[source + 1 :]
            for target in range(len(order)):
                candidate = [*rest[:target], order[source], *rest[target:]]
                if value(candidate) > current:
                    order, current, improved = candidate, value(candidate), True
                    break
            if improved:
                break
    return order
