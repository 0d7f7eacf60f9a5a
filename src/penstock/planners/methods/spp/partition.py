"""Cuts, replicas and mapping on a given order of the devices (SPP's second step, PRM), for all numbers of stages.

W(l, n, r, j) is the least bottleneck of the first l layers in n stages, the last on r devices that end at position j of
the order:

    W(l, n, r, j) = min over c < l and r' of max(W(c, n-1, r', j-r), channel(c; r', r), stage(c..l; r))

stage is M times the seconds of F, I and W on the group's slowest replica, plus the all-reduce; channel is M times the
seconds of the forward and backward bytes over the slowest pair or shared interface, each with its share.

The recurrence is the paper's. Added here: unequal devices (rows by speed, time of the slowest replica); any link matrix
and interfaces; unused devices at both ends of the order; and a queue that finds the inner minimum over c in constant
time on average (kernel.py), so that the table costs O(N J R R' L) for N stages, J positions, R replicas and L layers.
Above `MAX_POSITIONS` devices, or for very long models, stages begin and end only at host boundaries or at even steps
between them, and pipelines without replicas use the first `MAX_POSITIONS` devices of the order. The table ignores the
latency of channels and optimizer steps. Tied parameters count once, with the first layer that holds them.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan import SHARE_TOLERANCE, Group, Replica
from penstock.plan.pricing import NEGLIGIBLE_SHARE, measured_for, reduce_line
from penstock.planners.problem import Problem
from penstock.profile import Profile, fit

MAX_POSITIONS = 64
MAX_WORK = 5e8
"""Limit on the steps of the table, which take about a second."""
EXACT_RINGS = 256
"""Up to this many groups get their best ring; with more, the better of two rings."""
LARGEST = 1e250
"""Replaces anything larger, so that sums and products stay finite."""


class Partition(NamedTuple):
    """Stage k has layers cuts[k] up to cuts[k + 1] on groups[k]."""

    cuts: tuple[int, ...]
    groups: tuple[Group, ...]
    bottleneck_s: float
    """Seconds per iteration of the slowest stage with its all-reduce, or of the slowest channel."""
    least_s: float
    """Lower bound on the iteration time: the slowest stage, or half of the slowest channel (one of its directions).

    Above `EXACT_RINGS` groups it holds for the rings that are known here; pricing may find a faster one.
    """


def partition(problem: Problem, order: Sequence[int], num_stages: int, *, replication: bool = True) -> Partition | None:
    """The best partition into `num_stages` stages; None if there is none."""
    candidates = partitions(problem, order, replication=replication)
    return next((item for item in candidates if len(item.groups) == num_stages), None)


def partitions(
    problem: Problem, order: Sequence[int], *, replication: bool = True, num_replicas: int | None = None
) -> list[Partition]:
    """The best partition into each possible number of stages, from one table.

    With `num_replicas`, every stage has that many; without `replication`, one.
    """
    from penstock.planners.methods.spp.kernel import Groups, Joints, Order, bottlenecks, channel_seconds

    num_units = problem.profile.num_units
    row = Row(problem, order if replication else order[:MAX_POSITIONS])
    spans = (
        _spans(row, num_units) if replication else [(position, position + 1) for position in range(len(row.devices))]
    )
    if num_replicas is not None:
        spans = [(begin, end) for begin, end in spans if end - begin == num_replicas]
    if not spans:
        return []
    first, last = np.array(spans, dtype=np.int64).T
    into = [np.flatnonzero(last == begin) for begin in first]
    joints = Joints(
        np.concatenate([[0], np.cumsum([len(groups) for groups in into])]).astype(np.int64),
        np.concatenate(into).astype(np.int64),
    )
    devices = Order(row.speed, row.seconds_per_byte, row.host, row.interface_s)
    joint_s = channel_seconds(first, last, joints, devices, NEGLIGIBLE_SHARE)
    curves = [row.seconds(begin, end) for begin, end in spans]
    rings = [row.ring(begin, end, exact=len(spans) <= EXACT_RINGS) for begin, end in spans]
    parameters = np.concatenate([[0.0], np.cumsum(_parameters(problem.profile))])
    sizes = fit(problem.profile, problem.profile.kinds[0]).at(problem.rows_per_microbatch)
    num_stages = min(num_units, len(np.unique(first)))
    best, cuts, before = bottlenecks(
        num_stages,
        joints,
        np.minimum(joint_s, LARGEST),
        Groups(
            sums_begin=np.concatenate([[0], np.cumsum([len(curve) for curve in curves])]).astype(np.int64),
            sums=np.concatenate(curves),
            reduce_s=np.array([ring[0] for ring in rings]),
            latency_s=np.array([ring[1] for ring in rings]),
        ),
        parameters,
        problem.num_microbatches * np.concatenate([[0.0], sizes.cut_bytes]),
    )
    results = []
    for count in range(1, num_stages + 1):
        group = int(np.argmin(best[count]))
        if np.isfinite(best[count, group]):
            bottleneck_s = float(best[count, group])
            stops, groups, least_s = [num_units], [], bottleneck_s / 2
            for stage in range(count, 0, -1):
                stop, start = stops[-1], int(cuts[stage, group, stops[-1]])
                work = float((curves[group][:, stop] - curves[group][:, start]).max())
                reduce_s, latency_s = rings[group]
                least_s = max(least_s, work + float(parameters[stop] - parameters[start]) * reduce_s + latency_s)
                stops.append(start)
                groups.append(row.group(*spans[group]))
                group = int(before[stage, group, stop])
            results.append(Partition(tuple(reversed(stops)), tuple(reversed(groups)), bottleneck_s, least_s))
    return results


def _spans(row: "Row", num_units: int) -> list[tuple[int, int]]:
    """The runs of the order that may be groups, sorted by end, the longest first."""
    most = min(MAX_POSITIONS, max(1, int((24 * MAX_WORK / num_units) ** 0.25)))
    edges = _edges(row.host, most)
    return [
        (begin, end)
        for number, end in enumerate(edges)
        for begin in edges[:number]
        if end == begin + 1 or row.shares(begin, end).min() > 2 * SHARE_TOLERANCE
    ]


def _edges(host: Ints, most: int) -> list[int]:
    """Positions at which stages may begin and end: all, or about `most`, at host boundaries if possible."""
    num = len(host)
    if num <= most:
        return list(range(num + 1))
    runs = [0, *(np.flatnonzero(np.diff(host)) + 1).tolist(), num]
    if len(runs) - 1 >= most:
        return [*runs[: -1 : -(-(len(runs) - 1) // most)], num]
    pieces = most // (len(runs) - 1)
    edges = [edge for begin, end in pairwise(runs) for edge in range(begin, end, -(-(end - begin) // pieces))]
    return [*edges, num]


class Row:
    """The devices in order, with the costs of groups of neighbours."""

    def __init__(self, problem: Problem, order: Sequence[int]) -> None:
        self.devices = tuple(order)
        self._cluster = problem.cluster
        self._num_microbatches = problem.num_microbatches
        self.host: Ints = problem.cluster.host_index[list(order)]
        types: dict[tuple[str, float], int] = {}
        self._type: list[int] = []
        self._example: list[int] = []
        """For each type a device."""
        for index in order:
            device = problem.cluster.devices[index]
            self._type.append(types.setdefault((device.kind, device.speed), len(types)))
            if len(self._example) < len(types):
                self._example.append(index)
        self._problem = problem
        whole = [float(_work(problem, index, 1.0).sum()) for index in self._example]
        total = np.array([whole[kind] for kind in self._type])
        relative = total.min() / total if total.all() else np.ones(len(total))
        self.speed: Floats = np.maximum(relative, 1 / LARGEST)
        self._curves: dict[tuple[tuple[int, ...], tuple[float, ...]], Floats] = {}

    def shares(self, begin: int, end: int) -> Floats:
        """The share of the rows of each device of a group."""
        return np.asarray(self.speed[begin:end] / self.speed[begin:end].sum())

    def group(self, begin: int, end: int) -> Group:
        """The devices with their shares."""
        names = [self._cluster.devices[device].name for device in self.devices[begin:end]]
        return tuple(Replica(name, share) for name, share in zip(names, self.shares(begin, end).tolist(), strict=True))

    def seconds(self, begin: int, end: int) -> Floats:
        """Running sums over the layers of F, I and W of all micro-batches, on replicas that can be the slowest."""
        replicas = dict(zip(self._type[begin:end], self.shares(begin, end).tolist(), strict=True))
        key = tuple(replicas), tuple(replicas.values())
        if key not in self._curves:
            seconds = [_work(self._problem, self._example[kind], share) for kind, share in replicas.items()]
            curves = self._num_microbatches * _slowest(np.array(seconds))
            self._curves[key] = np.hstack([np.zeros((len(curves), 1)), np.cumsum(curves, axis=1)])
        return self._curves[key]

    def ring(self, begin: int, end: int, *, exact: bool) -> tuple[float, float]:
        """Seconds per byte of an all-reduce, and its latency."""
        if end == begin + 1:
            return 0.0, 0.0
        devices = self.devices[begin:end]
        if exact or measured_for(self._cluster, devices) is not None:
            constant_s, seconds_per_byte = reduce_line(self._cluster, devices)
            return min(seconds_per_byte, LARGEST), constant_s
        along = np.arange(begin, end)
        by_host = along[np.lexsort((np.array(self.devices[begin:end]), self.host[along]))]
        return min(self._ring_along(along), self._ring_along(by_host))

    def _ring_along(self, positions: Ints) -> tuple[float, float]:
        following = np.roll(positions, -1)
        slowest = float(self.seconds_per_byte[positions, following].max())
        crossing = self.host[positions] != self.host[following]
        crossings = np.bincount(self.host[positions[crossing]], minlength=len(self.interface_s))
        slowest = max(slowest, float((crossings * self.interface_s).max()))
        devices, targets = np.array(self.devices)[positions], np.array(self.devices)[following]
        latency = float(self._cluster.latency_s[devices, targets].max())
        return 2 * (len(positions) - 1) / len(positions) * slowest, 2 * (len(positions) - 1) * latency

    @cached_property
    def seconds_per_byte(self) -> Floats:
        """Seconds per byte of every link, by positions in the order."""
        with np.errstate(over="ignore"):
            seconds = 1 / self._cluster.bandwidth[np.ix_(self.devices, self.devices)]
        return np.minimum(seconds, LARGEST)

    @cached_property
    def interface_s(self) -> Floats:
        """Seconds per byte on each host's shared interface; 0 without one."""
        bandwidths = [host.interface_bandwidth for host in self._cluster.hosts]
        return np.array([0.0 if value is None else min(1 / max(value, 1 / LARGEST), LARGEST) for value in bandwidths])


def _parameters(profile: Profile) -> Floats:
    """Trained parameter bytes of each layer; tied parameters count with the first layer only."""
    sizes = np.array([unit.trained_bytes for unit in profile.units], dtype=np.float64)
    for tie in filter(lambda tie: tie.is_trained, profile.ties):
        sizes[sorted(tie.units)[1:]] -= tie.parameter_bytes
    return np.maximum(sizes, 0.0)


def _work(problem: Problem, device: int, share: float) -> Floats:
    clock = problem.clock
    sums = clock.prefix(device, share, "forward_s") + clock.prefix(device, share, "input_grad_s")
    return np.minimum(np.diff(sums + clock.prefix(device, share, "weight_grad_s")), LARGEST)


def _slowest(seconds: Floats) -> Floats:
    """The rows (one per replica) that may be the slowest for some run of layers."""
    top = seconds.max(axis=0) * (1 - 1e-12)
    alone = np.flatnonzero((seconds >= top).all(axis=1))
    if len(alone):
        return seconds[alone[:1]]
    kept: list[int] = []
    for row in np.argsort(-seconds.sum(axis=1), kind="stable").tolist():
        if not any((seconds[other] >= seconds[row]).all() for other in kept):
            kept.append(row)
    return seconds[kept]
