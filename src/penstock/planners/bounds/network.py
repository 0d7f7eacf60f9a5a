"""Lower bounds for slow networks, with replication: parts of the cluster, and the bytes that must pass between them.

Divide the devices into parts with fast links inside: hosts, or the components that links above some speed connect.
Suppose that a plan takes at most T seconds. A layer is *local* to a part if all rows of its forward and of its backward
are there; otherwise it is *spread*.

*Spread layers.* Either the backward is in several parts: then the ring of its gradients leaves and enters two of them,
and carries at least the layer's parameters over every link. Or some forward is in another part than the whole backward:
then the parameters return there. So the parameters pass between parts once (twice if backwards are not remote), and not
before all forwards, and I of all layers behind, are done for all micro-batches: `release_s`, at the speed of all
devices. They must finish by T over the fastest link between parts. For a run of such layers, the parameters of all of
them must leave and enter parts.

*Local layers.* The part of a run of local layers does all of the run's work: at most T times the part's speed.

*Between them.* If two layers are local to different parts, and no layer between them is local, all rows leave one part
and enter the other, forward and backward: at least the smallest cut between the layers, for all micro-batches, in two
directions, in both parts. If the layers are neighbours, these bytes pass between two parts. Now take a run of spread
layers next to a layer that is local to part c. Part c has capacity for only some of the run's work. If it does the
share y of the run's forward work, some layer of the run has at most y of its rows in c, and the other 1 - y must cross
into c on their path; likewise backward. So at least the smallest cut of the run passes, times the remainder that both
y leave; and if the run lies between two layers that are local to c, two different cuts pass. The bytes in and out of
one part, on both sides of a run that is local to it, are at most T times the part's rates in and out.

*Steps.* With a sharded optimizer, replicas divide the step evenly, and not by rows: then the work is without the steps.
The parameters pass in two parts, gradients before the step and parameters after it, and as many bytes in all.

*Local backwards.* If backwards may be remote, all of this also holds with "local" defined by backwards alone. Then the
gradients of a spread layer are reduced between parts, so its parameters pass twice, and only backwards count where rows
cross. The part of a backward also computes or recomputes the forward, except for rows whose saved tensors arrive from
outside. Those bytes limit the work that they can save (`RELIEF`; layers with small saved tensors are omitted).

*Measured all-reduces.* Where the cluster has tables of all-reduces inside a host, the links of a ring count with the
rate of the fastest of them if that is higher, and without latency (`_ring_links`).

A dynamic program over the layers decides whether any division satisfies all of this; bisection finds T. Capacity and
rates are those of the best part, and different runs in one part are not added up. That weakens the bound, and keeps it
valid.

Cost: O(layers^2) for each of some twenty T and at most `MAX_DIVISIONS` divisions. The bound is skipped above
`MAX_DEVICES` devices or `MAX_UNITS` layers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.cluster import Cluster
from penstock.planners.bounds.bisection import least_possible
from penstock.planners.bounds.unit_seconds import UnitTimes

MAX_DEVICES = 128
MAX_UNITS = 2000
MAX_DIVISIONS = 6
RELIEF = 0.05
"""The share of a part's speed that incoming saved tensors may save, for layers whose saved tensors are large enough."""
MAX_PAIRS = 400
"""With more pairs of parts, the rate in and out of a part replaces the rate between two parts."""


@dataclass(frozen=True, eq=False)
class Locality:
    """The definition of a local layer, and the cost of a spread one. Arrays are over layers."""

    work: Floats
    """Priced seconds of a local layer."""
    forward: Floats
    backward: Floats
    """Priced seconds of a spread layer's rows."""
    crossing: Floats
    """Half the bytes that pass behind the layer if all rows go from one part to another."""
    times_sent: int
    """How often the parameters of a spread layer pass between parts."""
    is_colocated: bool
    """Whether a row's forward and backward are always in the same part."""
    capacity_rate: float
    """Priced seconds per second of the best part."""
    pair_share: float
    """`crossing` as a share of the bytes that pass between two parts in one direction."""


class DividedProblem:
    """A problem on devices that are divided into parts; decides whether an iteration time is feasible."""

    def __init__(self, times: UnitTimes, part: Ints, *, remote_backward: bool) -> None:
        num = times.num_microbatches
        seconds = [num * lines.whole for lines in (times.forward, times.input_grad, times.weight_grad)]
        forward, backward = seconds[0], seconds[1] + seconds[2] + times.step.whole
        all_s = (forward + backward).sum(axis=1)
        price = (all_s.min() / all_s if all_s.min() > 0 else np.ones(len(all_s)))[:, None]
        ahead, inputs, back = ((price * jobs).min(axis=0) for jobs in (forward, seconds[1], backward))
        self.release_s = (ahead.sum() + inputs.sum() - np.cumsum(inputs)) / float(price.sum())
        self.parameters = times.returned_bytes
        links = _ring_links(times)
        rates = _rates(times.cluster, links.bandwidth, part)
        self.part_rate, self.all_rate, self.pair_rate = rates.part, rates.every, rates.pair
        between = part[:, None] != part[None, :]
        self.link_rate = float(links.rate[between].max())
        self.latency_s = float(links.latency_s[between].min())
        speed, crossing = np.bincount(part, price[:, 0]), num * times.both_ways_bytes
        both_local = Locality(
            work=ahead + back,
            forward=ahead,
            backward=back,
            crossing=crossing,
            times_sent=1 if remote_backward else 2,
            is_colocated=not remote_backward,
            capacity_rate=float(speed.max()),
            pair_share=1.0,
        )
        self.localities = [both_local]
        if remote_backward and np.isfinite(rates.incoming).all():
            per_byte = RELIEF * float((speed / rates.incoming).min())
            kept = np.where(ahead <= per_byte * num * times.saved_bytes, ahead, 0.0)
            backward_local = Locality(
                work=kept + back,
                forward=np.zeros_like(back),
                backward=back,
                crossing=crossing / 2,
                times_sent=2,
                is_colocated=True,
                capacity_rate=float((speed + per_byte * rates.incoming).max()),
                pair_share=0.5,
            )
            self.localities.append(backward_local)
        self.max_s = float((ahead + back).sum() / speed.max())

    def is_possible(self, limit_s: float) -> bool:
        """Whether no argument excludes an iteration of at most `limit_s` seconds."""
        return all(self._is_possible(locality, limit_s) for locality in self.localities)

    def _is_possible(self, locality: Locality, limit_s: float) -> bool:
        from penstock.planners.bounds.network_kernel import Layers, Limits, is_divisible

        # A ring has at least two rounds, each with its latency. Without parameters there is no weight return.
        rounds = 2 if locality.times_sent == 2 else 0
        through_s = self.parameters / self.link_rate + rounds * self.latency_s
        layers = Layers(
            local_work=locality.work,
            forward=locality.forward,
            backward=locality.backward,
            crossing=locality.crossing,
            spread_bytes=2 * locality.times_sent * self.parameters,
            release_s=self.release_s,
            can_spread=self.release_s + through_s <= limit_s,
        )
        limits = Limits(
            seconds=limit_s,
            capacity=limit_s * locality.capacity_rate,
            pair_bytes=limit_s * locality.pair_share * self.pair_rate,
            part_bytes=limit_s * self.part_rate,
            all_rate=self.all_rate,
        )
        return bool(is_divisible(layers, limits, not locality.is_colocated))


def network_bound(times: UnitTimes, least_s: float, *, remote_backward: bool) -> float:
    """The largest bound over several divisions of the devices; at least `least_s`, another lower bound."""
    if not 1 < times.cluster.num_devices <= MAX_DEVICES or times.num_units > MAX_UNITS:
        return least_s
    for part in divisions(times):
        problem = DividedProblem(times, part, remote_backward=remote_backward)
        least_s = least_possible(problem.is_possible, least_s, problem.max_s)
    return least_s


def divisions(times: UnitTimes) -> list[Ints]:
    """Divisions of the devices: by host, into single devices, and by links above several speeds, fast to slow.

    Each is an array with the number of every device's part.
    """
    num_devices = times.cluster.num_devices
    first, second = np.triu_indices(num_devices, 1)
    rate = np.maximum(times.rate, times.rate.T)[first, second]
    label = np.arange(num_devices)
    levels: list[Ints] = []
    for fast in np.unique(rate)[::-1]:
        for pair in np.flatnonzero(rate == fast):
            one, other = label[first[pair]], label[second[pair]]
            if one != other:
                label = np.where(label == max(one, other), min(one, other), label)
        if not label.any():
            break
        if not levels or (levels[-1] != label).any():
            levels.append(label)
    chosen = {round(number) for number in np.linspace(0, len(levels) - 1, MAX_DIVISIONS - 2)} if levels else set()
    candidates = [times.cluster.host_index, np.arange(num_devices), *(levels[number] for number in chosen)]
    partitions = {tuple(np.unique(part, return_inverse=True)[1].tolist()) for part in candidates}
    return [np.array(part) for part in sorted(partitions) if max(part) > 0]


class _RingLinks(NamedTuple):
    """Over pairs of devices: what a ring over them attains at most."""

    bandwidth: Floats
    rate: Floats
    """The same, limited by the hosts' interfaces."""
    latency_s: Floats


def _ring_links(times: UnitTimes) -> _RingLinks:
    """The links of the cluster; within hosts at least as fast as the measured all-reduces of up to all parameters.

    An all-reduce of n bytes over r devices that takes t seconds counts as 2 (r-1)/r n bytes over every link.
    """
    cluster = times.cluster
    most_bytes = float(times.trained_bytes.sum())
    if not cluster.all_reduces or most_bytes <= 0:
        return _RingLinks(cluster.bandwidth, times.rate, cluster.latency_s)
    sizes = np.bincount(cluster.host_index)
    rate = np.array(
        [
            max(
                (
                    2 * (entry.num_devices - 1) / entry.num_devices * entry.fastest(most_bytes)
                    for entry in cluster.all_reduces
                    if entry.num_devices <= size
                ),
                default=0.0,
            )
            for size in sizes
        ]
    )
    host = cluster.host_index
    least = np.where(host[:, None] == host[None, :], rate[host][:, None], 0.0)
    return _RingLinks(
        np.maximum(cluster.bandwidth, least),
        np.maximum(times.rate, least),
        np.where(least > 0, 0.0, cluster.latency_s),
    )


class Rates(NamedTuple):
    """Bytes per second over the borders of the parts."""

    part: float
    """In and out of the best part."""
    every: float
    """In and out of all parts."""
    pair: float
    """From one part to another, for the fastest pair."""
    incoming: Floats
    """Into each part."""


def _rates(cluster: Cluster, bandwidth: Floats, part: Ints) -> Rates:
    parts = [part == number for number in range(int(part.max()) + 1)]
    incoming = np.array([_rate(cluster, bandwidth, ~inside, inside) for inside in parts])
    each = incoming + np.array([_rate(cluster, bandwidth, inside, ~inside) for inside in parts])
    if len(parts) ** 2 > MAX_PAIRS:
        return Rates(each.max(), each.sum(), each.max(), incoming)
    pairs = [_rate(cluster, bandwidth, one, other) for one in parts for other in parts if one is not other]
    return Rates(each.max(), each.sum(), max(pairs), incoming)


def _rate(cluster: Cluster, bandwidth: Floats, sources: Bools, targets: Bools) -> float:
    """Bytes per second from some devices to others, over links and the interfaces of both ends."""
    host = cluster.host_index
    away = host[:, None] != host[None, :]
    links = np.where(sources[:, None] & targets[None, :], bandwidth, 0.0)
    within = float(links[~away].sum())
    interface = np.array([item.interface_bandwidth or np.inf for item in cluster.hosts])
    network = np.where(away, links, 0.0)
    leaving = np.minimum(np.bincount(host, network.sum(axis=1), len(interface)), interface)
    entering = np.minimum(np.bincount(host, network.sum(axis=0), len(interface)), interface)
    return within + float(min(leaving.sum(), entering.sum()))
