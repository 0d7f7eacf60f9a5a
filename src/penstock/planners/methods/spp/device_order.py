"""An order of the devices with fast links between neighbours, which crosses slow links once (SPP's first step, RDO).

The graph of devices, with each pair weighted by the sum of the bandwidths of both directions, is cut at its global
minimum cut. Both halves are cut in the same way until single devices are left; then the halves are joined again. A pair
of devices on different hosts gets at most an equal part of each shared interface. The devices of a host stay together
if all links inside it are faster than any link that leaves it; otherwise the minimum cut of equal devices would split
off an arbitrary single one.

Tie-breaking rules make the order of a cluster unique: of several minimum cuts the one that splits the fewest hosts,
then the most even one, then the one with the lowest device on its smaller side. Each half may be reversed when the
halves are joined: the devices at the joint should be on one host, then have the fastest link, then the whole order
should be lexicographically lowest.

The recursive minimum cut is the paper's; the rules, the hosts and the interfaces are added here. Cost: at most O(V^4)
for V devices or hosts, if every cut splits off one, in numpy steps on V numbers. Above `MAX_NODES` nodes the fastest
links are contracted first, so that 1,024 devices take a few seconds at most.

References: Luo et al., Efficient Pipeline Planning for Expedited Distributed DNN Training, 2022; Stoer and Wagner, A
Simple Min-Cut Algorithm, 1997.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats
from penstock.cluster import Cluster

Node = tuple[int, ...]
"""Devices that stay together until all other nodes are separated."""

MAX_NODES = 64
UNLIMITED = 1e6
"""The weight of a link without a bandwidth limit, relative to the fastest limited link."""
TIE = 1e-9
"""Cuts with a smaller relative difference are equal: sums depend on the order of their terms."""


def order_devices(cluster: Cluster, num_devices: int | None = None) -> list[int]:
    """Order the devices (the first `num_devices` of the cluster, or all) along fast links.

    Returns:
        Indices of devices.

    >>> from penstock.cluster.load import load_cluster
    >>> order_devices(load_cluster("2 x 2 x T4 @ 10 GB/s / 1 GB/s"))
    [0, 1, 2, 3]
    """
    devices = range(cluster.num_devices)[:num_devices]
    weight = link_weights(cluster)[: len(devices), : len(devices)]
    links = _Links(weight, cluster.host_index[: len(devices)].tolist(), _whole_hosts(weight, cluster.host_index))
    order = _arrange(links, [tuple(devices)])
    return order if order[0] <= order[-1] else order[::-1]


def link_weights(cluster: Cluster) -> Floats:
    """The summed bandwidth of both directions of every pair of devices, relative to the largest; 0 on the diagonal."""
    host = cluster.host_index
    sizes = np.bincount(host, minlength=len(cluster.hosts))
    pairs = np.maximum(sizes * (len(host) - sizes), 1)
    bandwidths = [item.interface_bandwidth for item in cluster.hosts]
    part = np.array([np.inf if bandwidth is None else bandwidth for bandwidth in bandwidths]) / pairs
    limit = np.minimum(part[host][:, None], part[host][None, :])
    directed = np.where(host[:, None] == host[None, :], cluster.bandwidth, np.minimum(cluster.bandwidth, limit))
    finite = directed[np.isfinite(directed)]
    scale = float(finite.max()) if len(finite) else 1.0
    directed = np.where(np.isfinite(directed), directed / scale, UNLIMITED)
    both = np.asarray(directed + directed.T)
    np.fill_diagonal(both, 0.0)
    return both


class _Links(NamedTuple):
    weight: Floats
    host: list[int]
    whole_hosts: frozenset[int]

    def between(self, nodes: Sequence[Node]) -> Floats:
        """The weights between nodes, summed over all pairs of their devices."""
        devices = [device for node in nodes for device in node]
        begin = np.concatenate([[0], np.cumsum([len(node) for node in nodes])[:-1]])
        weight = self.weight[np.ix_(devices, devices)]
        matrix = np.add.reduceat(np.add.reduceat(weight, begin, axis=0), begin, axis=1)
        np.fill_diagonal(matrix, 0.0)
        return np.asarray((matrix + matrix.T) / 2)


def _whole_hosts(weight: Floats, host_of: npt.NDArray[np.int64]) -> frozenset[int]:
    """The hosts whose inside links are all faster than any link that leaves them."""
    whole_hosts = set()
    host_of = host_of[: len(weight)]
    for host in np.unique(host_of).tolist():
        inside, outside = np.flatnonzero(host_of == host), np.flatnonzero(host_of != host)
        within = weight[np.ix_(inside, inside)] + np.diag(np.full(len(inside), np.inf))
        if not len(outside) or within.min() > weight[np.ix_(inside, outside)].max():
            whole_hosts.add(host)
    return frozenset(whole_hosts)


def _arrange(links: _Links, nodes: list[Node]) -> list[int]:
    """Order the devices of some nodes."""
    if len(nodes) == 1:
        (node,) = nodes
        return list(node) if len(node) == 1 else _arrange(links, _open(links, node))
    matrix = links.between(nodes)
    beside = matrix[~np.eye(len(nodes), dtype=bool)]
    if np.ptp(beside) <= TIE * beside.max():
        return [device for node in _by_host(links, nodes) for device in _arrange(links, [node])]
    if len(nodes) > MAX_NODES:
        return _arrange(links, _contract(links, nodes))
    side = minimum_cut(matrix, [{links.host[device] for device in node} for node in nodes])
    apart = [nodes[number] for number in side]
    rest = [node for number, node in enumerate(nodes) if number not in set(side)]
    return _join(links, _arrange(links, apart), _arrange(links, rest))


def _open(links: _Links, node: Node) -> list[Node]:
    """Split a node into whole hosts and single devices; a node of one host into its devices."""
    devices_of_host: dict[int, list[int]] = {}
    for device in node:
        devices_of_host.setdefault(links.host[device], []).append(device)
    if len(devices_of_host) == 1:
        return [(device,) for device in node]
    parts: list[Node] = []
    for host, devices in devices_of_host.items():
        parts += [tuple(devices)] if host in links.whole_hosts else [(device,) for device in devices]
    return sorted(parts)


def _by_host(links: _Links, nodes: list[Node]) -> list[Node]:
    """Sort nodes by host: the result of repeatedly splitting off the lowest node if all links are equal."""
    first: dict[int, int] = {}
    for node in nodes:
        first.setdefault(links.host[node[0]], node[0])
    return sorted(nodes, key=lambda node: (first[links.host[node[0]]], node))


def _join(links: _Links, left: list[int], right: list[int]) -> list[int]:
    """Concatenate two orders, each reversed if that gives a better joint."""
    best: tuple[tuple[bool, float, list[int]], list[int]] | None = None
    for first in (left, left[::-1]):
        for second in (right, right[::-1]):
            joint = first[-1], second[0]
            order = first + second
            order = order if order[0] < order[-1] else order[::-1]
            crosses_hosts = links.host[joint[0]] != links.host[joint[1]]
            key = (crosses_hosts, -float(links.weight[joint]), order)
            if best is None or key < best[0]:
                best = key, order
    assert best is not None
    return best[1]


def minimum_cut(matrix: Floats, hosts: Sequence[set[int]]) -> list[int]:
    """One side of the minimum cut of a graph with two or more nodes: the smaller one, or the one with node 0.

    >>> minimum_cut(np.array([[0.0, 5, 1], [5, 0, 1], [1, 1, 0]]), [{0}, {0}, {0}])
    [2]
    """
    weight = matrix.copy()
    num = len(weight)
    merged = [[number] for number in range(num)]
    alive = list(range(num))
    best: tuple[float, tuple[int, int, list[int]], list[int]] | None = None
    while len(alive) > 1:
        before, last, value = _phase(weight, alive)
        side = _smaller(merged[last], num)
        if best is None or value <= best[0] * (1 + TIE):
            key = (_split_hosts(side, hosts), -len(side), side)
            if best is None or value < best[0] * (1 - TIE) or key < best[1]:
                best = value, key, side
        merged[before] += merged[last]
        weight[before] += weight[last]
        weight[:, before] = weight[before]
        weight[before, before] = 0.0
        alive.remove(last)
    assert best is not None
    return best[2]


def _phase(weight: Floats, alive: list[int]) -> tuple[int, int, float]:
    """Add the node with the largest weight to those added, repeatedly; return the last two and the last one's cut."""
    tight = weight[alive[0]].copy()
    open_nodes = np.full(len(weight), -np.inf)
    open_nodes[alive[1:]] = 0.0
    order = [alive[0]]
    value = 0.0
    for _ in range(len(alive) - 1):
        chosen = int(np.argmax(tight + open_nodes))
        value = float(tight[chosen])
        open_nodes[chosen] = -np.inf
        tight += weight[chosen]
        order.append(chosen)
    return order[-2], order[-1], value


def _smaller(side: list[int], num: int) -> list[int]:
    other = sorted(set(range(num)) - set(side))
    side = sorted(side)
    return min(side, other, key=lambda nodes: (len(nodes), nodes))


def _split_hosts(side: list[int], hosts: Sequence[set[int]]) -> int:
    """Number of hosts with nodes on both sides."""
    inside = set(side)
    side_hosts = set().union(*(hosts[number] for number in side))
    other_hosts = set().union(*(hosts[number] for number in range(len(hosts)) if number not in inside))
    return len(side_hosts & other_hosts)


def _contract(links: _Links, nodes: list[Node]) -> list[Node]:
    """Merge nodes along the fastest links into at most `MAX_NODES`, none much larger than the others."""
    matrix = links.between(nodes) / np.outer([len(node) for node in nodes], [len(node) for node in nodes])
    most = -(-2 * len(nodes) // MAX_NODES)
    parent = list(range(len(nodes)))
    size = [1] * len(nodes)

    def find(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first, second = np.triu_indices(len(nodes), 1)
    count = len(nodes)
    for at in np.argsort(-matrix[first, second], kind="stable").tolist():
        one, other = find(int(first[at])), find(int(second[at]))
        if one != other and size[one] + size[other] <= most:
            parent[max(one, other)] = min(one, other)
            size[min(one, other)] += size[max(one, other)]
            count -= 1
            if count <= MAX_NODES:
                break
    groups: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        groups.setdefault(find(number), []).extend(node)
    return sorted(tuple(sorted(group)) for group in groups.values())
