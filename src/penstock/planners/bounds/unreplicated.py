"""Lower bounds for slow networks, without replication: layers whose tensors cannot be sent in time stay together.

Suppose that a plan takes at most T seconds. Every job is on one device, so the M messages of a cut go over one link,
one after another: the first after the shortest path to it, the last followed by the shortest path from it
(`ShortestPaths`). Where that exceeds T, no message uses this link; likewise no device runs a job that would end too
late. Removing these makes the paths longer, which may remove more. If some job has no device left, T is infeasible.

*Together.* All forwards of a run of layers are on devices that are connected by links which the cuts between them can
use; likewise all backwards. If the links that the saved tensors of these layers can use are added, the forwards are in
the same part of the devices as the backwards: a remote backward receives its forward's saved tensors, at least those of
the layer, or its device recomputes the forward. So one such part has the work of the whole run, or T is infeasible.
Work is counted in prices as in `work.py`, in proportion to the devices' speed.

*Apart.* Divide the devices into parts, for instance hosts. A layer stays in one part with the next one if the cut
between them cannot leave the part in time, and with its own forward if its saved tensors cannot. All such runs must
fit into the parts: the argument of `packing.py`, with parts for devices.

*Parts.* While the whole model must stay in one part, the bounds for that part alone hold: an iteration takes at least
the bound of the best part, or the time from which the model can leave a part.

Cost: some dozens of times O(layers devices^2 + layers^2 devices). The bound is skipped above `MAX_DEVICES` devices.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.arrays import Ints
from penstock.cluster import select_devices
from penstock.planners.bounds.bisection import PRECISION, least_possible
from penstock.planners.bounds.chain import ShortestPaths, shortest_paths, turn_bytes
from penstock.planners.bounds.network import divisions
from penstock.planners.bounds.packing import MULTIPLES, SIZES
from penstock.planners.bounds.unit_seconds import Lines, UnitTimes

MAX_DEVICES = 64
MAX_PARTS = 6
"""How many different parts get their own bounds; further ones count with their work alone."""
MAX_LEVELS = 4

PartBound = Callable[[UnitTimes], float]
"""Computes a lower bound for a subset of the devices."""


class UnreplicatedProblem:
    """A problem as arrays; decides whether an iteration time is feasible."""

    def __init__(self, times: UnitTimes, *, remote_backward: bool) -> None:
        self.times, self.remote_backward = times, remote_backward
        self.jobs = np.stack([times.forward.whole.T, times.input_grad.whole.T, times.weight_grad.whole.T])
        self.step = np.ascontiguousarray(times.step.whole.T)
        self.net = np.stack([times.cluster.latency_s, 1 / times.rate])
        paths: ShortestPaths = shortest_paths(times)
        self.paths = np.stack([paths.forward_before, paths.forward_after, paths.backward_before, paths.backward_after])
        num = times.num_microbatches
        forward, backward = num * self.jobs[0], num * (self.jobs[1] + self.jobs[2]) + self.step
        all_s = (forward + backward).sum(axis=0)
        self.price = all_s.min() / all_s if all_s.min() > 0 else np.ones(len(all_s))
        self.divisions = divisions(times)
        forward_work, backward_work, local_work = (
            (self.price * seconds).min(axis=1) for seconds in (forward, backward, forward + backward)
        )
        # Forward and backward may be on different devices of one part, each on the one with the least work.
        self.work = [forward_work, backward_work, forward_work + backward_work if remote_backward else local_work]
        self.longest_s = float((local_work / self.price.max()).sum()) + float(self.paths[0].max())
        """About the time of the whole model on the best device alone: the bound cannot be higher."""

    def labels(self, limit_s: float) -> Ints | None:
        """The parts that transfers within `limit_s` cannot leave (`joined_parts`); None if `limit_s` is infeasible."""
        from penstock.planners.bounds.unreplicated_parts_kernel import joined_parts
        from penstock.planners.bounds.unreplicated_paths_kernel import Chain, narrow

        times, paths = self.times, self.paths.copy()
        chain = Chain(
            jobs=self.jobs,
            step=self.step,
            cut=times.both_ways_bytes,
            turn_bytes=turn_bytes(times),
            net=self.net,
            num_microbatches=times.num_microbatches,
            remote_backward=self.remote_backward,
        )
        if not narrow(paths, chain, limit_s):
            return None
        return np.asarray(joined_parts(paths, chain, times.saved_bytes, limit_s))

    def is_possible(self, limit_s: float) -> bool:
        """Whether no argument excludes an iteration of at most `limit_s` seconds."""
        from penstock.planners.bounds.unreplicated_parts_kernel import overfull, unpackable

        labels = self.labels(limit_s)
        if labels is None:
            return False
        forward, backward, saved = labels
        separate = np.broadcast_to(np.arange(saved.shape[1]), saved.shape).copy()
        cases = (forward, separate, self.work[0]), (backward, separate, self.work[1]), (backward, saved, self.work[2])
        if any(overfull(*case, self.price, limit_s) for case in cases):
            return False
        capacities = [limit_s * np.bincount(part, self.price) for part in self.divisions]
        return not any(
            unpackable(backward, saved, part, self.work[0], self.work[1], capacity, MULTIPLES, SIZES)
            for part, capacity in zip(self.divisions, capacities, strict=True)
        )

    def parts(self, limit_s: float) -> Ints:
        """For each device, the part that the whole model could not leave."""
        from penstock.planners.bounds.unreplicated_parts_kernel import joined_over_all

        labels = self.labels(limit_s)
        if labels is None:
            return np.arange(len(self.price))
        return np.asarray(joined_over_all(labels[1], labels[2]))


def unreplicated_bound(times: UnitTimes, least_s: float, part_bound: PartBound, *, remote_backward: bool) -> float:
    """The largest bound of this kind; at least `least_s`, another lower bound."""
    if not 1 < times.cluster.num_devices <= MAX_DEVICES:
        return least_s
    problem = UnreplicatedProblem(times, remote_backward=remote_backward)
    max_s = problem.longest_s
    bound = least_possible(problem.is_possible, least_s, max_s)
    for _ in range(MAX_LEVELS):
        parts = problem.parts(bound * (1 + PRECISION))
        if not parts.any():
            break
        leaving = least_possible(lambda limit_s: bool((problem.parts(limit_s) != parts).any()), bound, max_s)  # noqa: B023
        inside = _part_bounds(problem, parts, leaving, part_bound)
        bound = max(bound, min(inside, leaving))
        if inside <= leaving:
            break
    return bound


def _part_bounds(problem: UnreplicatedProblem, parts: Ints, enough_s: float, part_bound: PartBound) -> float:
    """The least bound over all parts; values above `enough_s` need not be exact."""
    least_s = np.inf
    known: set[tuple[object, ...]] = set()
    cluster, all_s = problem.times.cluster, float(problem.work[2].sum())
    for part in np.unique(parts):
        devices = np.flatnonzero(parts == part)
        alone = all_s / float(problem.price[devices].sum())
        key = (
            tuple((cluster.devices[device].kind, cluster.devices[device].speed) for device in devices),
            problem.net[:, devices[:, None], devices].tobytes(),
        )
        if alone >= min(least_s, enough_s) or key in known:
            least_s = min(least_s, alone) if key not in known else least_s
            continue
        known.add(key)
        value = alone if len(known) > MAX_PARTS else part_bound(_on_devices(problem.times, devices))
        least_s = min(least_s, max(value, alone))
    return least_s


def _on_devices(times: UnitTimes, devices: Ints) -> UnitTimes:
    """The times on a subset of the devices."""

    def lines(every: Lines) -> Lines:
        return Lines(every.base[devices], every.per_share[devices])

    return replace(
        times,
        cluster=select_devices(times.cluster, devices.tolist()),
        forward=lines(times.forward),
        input_grad=lines(times.input_grad),
        weight_grad=lines(times.weight_grad),
        step=lines(times.step),
    )
