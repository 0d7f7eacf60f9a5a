"""Cuts, replicas and map for a given order of the devices (SPP's second step, PRM), for all numbers of stages at once.

W(l, n, r, j) is the least bottleneck of the first l units in n stages, the last on r devices that end at place j of the
order:

    W(l, n, r, j) = min over c < l and r' of max(W(c, n-1, r', j-r), channel(c; r', r), stage(c..l; r))

stage is M times the seconds of F, I and W on the group's slowest member, plus the all-reduce; channel is M times the
seconds that forward and backward bytes take over the slowest pair, or shared interface, each with its share.

The recurrence is the paper's. Ours: unequal devices (rows by speed, time of the slowest member); any link matrix and
interfaces; devices at both ends of the order may stay unused; and the inner minimum over c, which a queue finds in
constant time on average (spp_kernel.py), so that the table costs O(N J R R' L) for N stages, J places, R replicas and L
units. Above `MOST_PLACES` devices, or for very long models, stages begin and end only at host boundaries or at even
steps between them, and pipelines without replicas use the first `MOST_PLACES` devices of the order.
Not counted: latency of channels and optimizer steps. Tied parameters count once, with the first unit that has them.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan import SHARE_TOLERANCE, Group, Replica
from penstock.plan.pricing import NEGLIGIBLE_SHARE, reduce_ring
from penstock.planners.problem import Problem
from penstock.profile import Profile, fit

MOST_PLACES = 64
MOST_WORK = 5e8
"""Steps of the table; about as many can be done in a second."""
EXACT_RINGS = 256
"""For so many groups the best ring is searched; for more, the better of two rings has to do."""
LARGEST = 1e250
"""Instead of anything larger, so that sums and products stay finite."""


class Partition(NamedTuple):
    """Stage k has the units cuts[k] up to cuts[k + 1] and groups[k]."""

    cuts: tuple[int, ...]
    groups: tuple[Group, ...]
    bottleneck_s: float
    """Of a whole iteration: the slowest stage with its all-reduce, or the slowest channel."""
    least_s: float
    """The slowest stage, or half of the slowest channel (one of its directions): no iteration is shorter, as far as the
    all-reduces are known (above `EXACT_RINGS` groups a faster ring may be found later)."""


def partition(problem: Problem, order: Sequence[int], num_stages: int, *, replication: bool = True) -> Partition | None:
    """The best partition into so many stages; None if there is none."""
    found = partitions(problem, order, replication=replication)
    return next((item for item in found if len(item.groups) == num_stages), None)


def partitions(problem: Problem, order: Sequence[int], *, replication: bool = True) -> list[Partition]:
    """The best partition into each number of stages that is possible, from one table."""
    from penstock.planners.methods.spp.kernel import bottlenecks, channel_seconds

    num_units = problem.profile.num_units
    row = Row(problem, order if replication else order[:MOST_PLACES])
    spans = _spans(row, num_units) if replication else [(place, place + 1) for place in range(len(row.devices))]
    first, last = np.array(spans, dtype=np.int64).T
    into = [np.flatnonzero(last == begin) for begin in first]
    joint_begin = np.concatenate([[0], np.cumsum([len(groups) for groups in into])]).astype(np.int64)
    joint_from = np.concatenate(into).astype(np.int64)
    joint_s = channel_seconds(
        first,
        last,
        joint_begin,
        joint_from,
        row.speed,
        row.seconds_per_byte,
        row.host,
        row.interface_s,
        NEGLIGIBLE_SHARE,
    )
    curves = [row.seconds(begin, end) for begin, end in spans]
    rings = [row.ring(begin, end, exact=len(spans) <= EXACT_RINGS) for begin, end in spans]
    parameters = np.concatenate([[0.0], np.cumsum(_parameters(problem.profile))])
    sizes = fit(problem.profile, problem.profile.kinds[0]).at(problem.rows_per_microbatch)
    num_stages = min(num_units, len(np.unique(first)))
    best, cuts, before = bottlenecks(
        num_stages,
        joint_begin,
        joint_from,
        np.minimum(joint_s, LARGEST),
        np.concatenate([[0], np.cumsum([len(curve) for curve in curves])]).astype(np.int64),
        np.concatenate(curves),
        parameters,
        np.array([ring[0] for ring in rings]),
        np.array([ring[1] for ring in rings]),
        problem.num_microbatches * np.concatenate([[0.0], sizes.cut_bytes]),
    )
    found = []
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
            found.append(Partition(tuple(reversed(stops)), tuple(reversed(groups)), bottleneck_s, least_s))
    return found


def _spans(row: "Row", num_units: int) -> list[tuple[int, int]]:
    """The runs of the order that may be groups, by their end and then the longest first."""
    most = min(MOST_PLACES, max(1, int((24 * MOST_WORK / num_units) ** 0.25)))
    edges = _edges(row.host, most)
    return [
        (begin, end)
        for number, end in enumerate(edges)
        for begin in edges[:number]
        if end == begin + 1 or row.shares(begin, end).min() > 2 * SHARE_TOLERANCE
    ]


def _edges(host: Ints, most: int) -> list[int]:
    """Where stages may begin and end: anywhere, or at most about so many places, at host boundaries if possible."""
    num = len(host)
    if num <= most:
        return list(range(num + 1))
    runs = [0, *(np.flatnonzero(np.diff(host)) + 1).tolist(), num]
    if len(runs) - 1 >= most:
        return [*runs[: -1 : -(-(len(runs) - 1) // most)], num]
    pieces = most // (len(runs) - 1)
    edges = [place for begin, end in pairwise(runs) for place in range(begin, end, -(-(end - begin) // pieces))]
    return [*edges, num]


class Row:
    """The devices in order, with what groups of neighbours cost."""

    def __init__(self, problem: Problem, order: Sequence[int]) -> None:
        self.devices = tuple(order)
        self._cluster = problem.cluster
        self._num_microbatches = problem.num_microbatches
        self.host: Ints = problem.cluster.host_index[list(order)]
        types: dict[tuple[str, float], int] = {}
        self._type: list[int] = []
        base: list[Floats] = []
        slope: list[Floats] = []
        for device in order:
            found = problem.cluster.devices[device]
            self._type.append(types.setdefault((found.kind, found.speed), len(types)))
            if len(base) < len(types):
                # Seconds are a base and a part for each row; two shares tell them apart.
                whole, half = (_work(problem, device, share) for share in (1.0, 0.5))
                base.append(np.maximum(2 * half - whole, 0.0))
                slope.append(whole - base[-1])
        self._base, self._slope = np.array(base), np.array(slope)
        total = np.array([float((self._base[kind] + self._slope[kind]).sum()) for kind in self._type])
        relative = total.min() / total if total.all() else np.ones(len(total))
        self.speed: Floats = np.maximum(relative, 1 / LARGEST)
        self._curves: dict[tuple[tuple[int, ...], tuple[float, ...]], Floats] = {}

    def shares(self, begin: int, end: int) -> Floats:
        """The share of rows of each device of a group."""
        return np.asarray(self.speed[begin:end] / self.speed[begin:end].sum())

    def group(self, begin: int, end: int) -> Group:
        """The devices with their shares."""
        names = [self._cluster.devices[device].name for device in self.devices[begin:end]]
        return tuple(Replica(name, share) for name, share in zip(names, self.shares(begin, end).tolist(), strict=True))

    def seconds(self, begin: int, end: int) -> Floats:
        """Running sums over the units of F, I and W of all micro-batches, on members that may be the slowest."""
        replicas = dict(zip(self._type[begin:end], self.shares(begin, end).tolist(), strict=True))
        key = tuple(replicas), tuple(replicas.values())
        if key not in self._curves:
            share = np.array(list(replicas.values()))[:, None]
            curves = self._num_microbatches * _slowest(self._base[list(replicas)] + self._slope[list(replicas)] * share)
            self._curves[key] = np.hstack([np.zeros((len(curves), 1)), np.cumsum(curves, axis=1)])
        return self._curves[key]

    def ring(self, begin: int, end: int, *, exact: bool) -> tuple[float, float]:
        """Seconds of an all-reduce for each byte, and its latency."""
        if end == begin + 1:
            return 0.0, 0.0
        if exact:
            found = reduce_ring(self._cluster, self.devices[begin:end], 1.0)
            return min(found.occupancy_s, LARGEST), found.latency_s
        along = np.arange(begin, end)
        by_host = along[np.lexsort((np.array(self.devices[begin:end]), self.host[along]))]
        return min(self._ring_along(along), self._ring_along(by_host))

    def _ring_along(self, places: Ints) -> tuple[float, float]:
        following = np.roll(places, -1)
        slowest = float(self.seconds_per_byte[places, following].max())
        crossing = self.host[places] != self.host[following]
        crossings = np.bincount(self.host[places[crossing]], minlength=len(self.interface_s))
        slowest = max(slowest, float((crossings * self.interface_s).max()))
        devices, targets = np.array(self.devices)[places], np.array(self.devices)[following]
        latency = float(self._cluster.latency_s[devices, targets].max())
        return 2 * (len(places) - 1) / len(places) * slowest, 2 * (len(places) - 1) * latency

    @cached_property
    def seconds_per_byte(self) -> Floats:
        """Of every link, by places in the order."""
        with np.errstate(over="ignore"):
            seconds = 1 / self._cluster.bandwidth[np.ix_(self.devices, self.devices)]
        return np.minimum(seconds, LARGEST)

    @cached_property
    def interface_s(self) -> Floats:
        """Seconds of a byte on each host's interface; 0 where none is shared."""
        given = [host.interface_bandwidth for host in self._cluster.hosts]
        return np.array([0.0 if value is None else min(1 / max(value, 1 / LARGEST), LARGEST) for value in given])


def _parameters(profile: Profile) -> Floats:
    """Bytes of each unit's parameters, those that units share with the first of them only."""
    sizes = np.array([unit.parameter_bytes for unit in profile.units], dtype=np.float64)
    for tie in profile.ties:
        sizes[sorted(tie.units)[1:]] -= tie.parameter_bytes
    return np.maximum(sizes, 0.0)


def _work(problem: Problem, device: int, share: float) -> Floats:
    clock = problem.clock
    sums = clock.prefix(device, share, "forward_s") + clock.prefix(device, share, "input_grad_s")
    return np.minimum(np.diff(sums + clock.prefix(device, share, "weight_grad_s")), LARGEST)


def _slowest(seconds: Floats) -> Floats:
    """The rows (one a member) that are the slowest of all for some run of units; others are left out."""
    top = seconds.max(axis=0) * (1 - 1e-12)
    alone = np.flatnonzero((seconds >= top).all(axis=1))
    if len(alone):
        return seconds[alone[:1]]
    kept: list[int] = []
    for row in np.argsort(-seconds.sum(axis=1), kind="stable").tolist():
        if not any((seconds[other] >= seconds[row]).all() for other in kept):
            kept.append(row)
    return seconds[kept]
