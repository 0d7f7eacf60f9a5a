"""Lower bounds for slow networks, if nothing is replicated: what cannot be sent in time stays together.

Suppose that a plan takes at most T seconds. Every job is on one device, so the M messages of a cut go over one link,
one after the other: the first after the shortest way to there, the last followed by the shortest way from there
(`Ways`). Where that is more than T, no message goes; jobs that would be too late in the same sense are not there
either. Without these the ways get longer, and so on. If some job has no device left, T is too short.

*Together.* Of a run of units, all forwards are on devices that are joined by links which the cuts between them can
use; likewise all backwards. If also the links that the saved tensors of its units can use are taken in, then the
forwards are in the same part of the devices as the backwards: a forward elsewhere sends its saved tensors, at least
those of the unit, or it is done again where the backward is. So one such part has the work of the whole run, or T is
too short. Work is counted in prices as in `bounds_work.py`, in proportion to the devices' speed.

*Apart.* Divide the devices into parts, for instance hosts. Units stay in one part with the next one if no cut between
them can leave it, and with their forwards if saved tensors cannot. All such runs must fit into the parts: as in
`bounds_packing.py`, with parts for devices.

*Parts.* While the whole model has to stay in one part, the bounds for that part alone hold: an iteration takes at
least as long as the best part needs, or as long as it takes to leave a part.

Cost: some dozens of times O(units devices^2 + units^2 devices). Above `MOST_DEVICES` it is left out.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.arrays import Ints
from penstock.cluster import part_of
from penstock.planners.bounds.bisection import PRECISION, least_possible
from penstock.planners.bounds.chain import Ways, turn_bytes, ways
from penstock.planners.bounds.network import divisions
from penstock.planners.bounds.packing import MULTIPLES, SIZES
from penstock.planners.bounds.unit_seconds import Lines, UnitTimes

MOST_DEVICES = 64
MOST_PARTS = 6
"""For how many different parts the bounds are worked out; with more, they count as their work alone."""
MOST_LEVELS = 4

PartBound = Callable[[UnitTimes], float]
"""A bound for some of the devices."""


class Straight:
    """A problem, as arrays, and the question whether an iteration can take so long."""

    def __init__(self, times: UnitTimes, *, moved: bool) -> None:
        self.times, self.moved = times, moved
        self.jobs = np.stack([times.forward.whole.T, times.input_grad.whole.T, times.weight_grad.whole.T])
        self.step = np.ascontiguousarray(times.step.whole.T)
        self.net = np.stack([times.cluster.latency_s, 1 / times.rate])
        found: Ways = ways(times)
        self.ways = np.stack([found.forward_before, found.forward_after, found.backward_before, found.backward_after])
        num = times.num_microbatches
        forward, backward = num * self.jobs[0], num * (self.jobs[1] + self.jobs[2]) + self.step
        all_s = (forward + backward).sum(axis=0)
        self.price = all_s.min() / all_s if all_s.min() > 0 else np.ones(len(all_s))
        self.divisions = divisions(times)
        self.work = [(self.price * seconds).min(axis=1) for seconds in (forward, backward, forward + backward)]

    def labels(self, limit_s: float) -> Ints | None:
        """The parts in which things stay (`parts_of`) if an iteration takes at most so long; None if none can."""
        from penstock.planners.bounds.unreplicated_kernel import narrow, parts_of

        times, found = self.times, self.ways.copy()
        num, turn = times.num_microbatches, turn_bytes(times)
        fixed = self.jobs, times.cut_bytes
        if not narrow(found, self.jobs, self.step, times.cut_bytes, turn, self.net, num, self.moved, limit_s):
            return None
        return np.asarray(parts_of(found, *fixed, times.saved_bytes, self.net, num, self.moved, limit_s))

    def possible(self, limit_s: float) -> bool:
        """Whether nothing says that an iteration cannot take at most so long."""
        from penstock.planners.bounds.unreplicated_kernel import overfull, unpackable

        labels = self.labels(limit_s)
        if labels is None:
            return False
        ahead, back, saved = labels
        nowhere = np.broadcast_to(np.arange(saved.shape[1]), saved.shape).copy()
        cases = (ahead, nowhere, self.work[0]), (back, nowhere, self.work[1]), (back, saved, self.work[2])
        if any(overfull(*case, self.price, limit_s) for case in cases):
            return False
        rooms = [limit_s * np.bincount(part, self.price) for part in self.divisions]
        return not any(
            unpackable(back, saved, part, self.work[0], self.work[1], room, MULTIPLES, SIZES)
            for part, room in zip(self.divisions, rooms, strict=True)
        )

    def parts(self, limit_s: float) -> Ints:
        """For each device the part within which it would have to do everything."""
        from penstock.planners.bounds.unreplicated_kernel import joined_over_all

        labels = self.labels(limit_s)
        if labels is None:
            return np.arange(len(self.price))
        return np.asarray(joined_over_all(labels[1], labels[2]))


def straight_bound(times: UnitTimes, least_s: float, part_bound: PartBound, *, moved: bool) -> float:
    """The largest such bound, if it is above `least_s`, which is one already."""
    if not 1 < times.cluster.num_devices <= MOST_DEVICES:
        return least_s
    problem = Straight(times, moved=moved)
    # About what everything takes on the best device alone: more need not be looked for.
    most_s = float((problem.work[2] / problem.price.max()).sum()) + float(problem.ways[0].max())
    bound = least_possible(problem.possible, least_s, most_s)
    for _ in range(MOST_LEVELS):
        parts = problem.parts(bound * (1 + PRECISION))
        if not parts.any():
            break
        leaving = least_possible(lambda limit_s: bool((problem.parts(limit_s) != parts).any()), bound, most_s)  # noqa: B023
        inside = _inside(problem, parts, leaving, part_bound)
        bound = max(bound, min(inside, leaving))
        if inside <= leaving:
            break
    return bound


def _inside(problem: Straight, parts: Ints, enough_s: float, part_bound: PartBound) -> float:
    """The least bound of all parts, or more than enough."""
    found = np.inf
    known: set[tuple[object, ...]] = set()
    cluster, all_s = problem.times.cluster, float(problem.work[2].sum())
    for part in np.unique(parts):
        places = np.flatnonzero(parts == part)
        alone = all_s / float(problem.price[places].sum())
        key = (
            tuple((cluster.devices[place].kind, cluster.devices[place].speed) for place in places),
            problem.net[:, places[:, None], places].tobytes(),
        )
        if alone >= min(found, enough_s) or key in known:
            found = min(found, alone) if key not in known else found
            continue
        known.add(key)
        value = alone if len(known) > MOST_PARTS else part_bound(_some(problem.times, places))
        found = min(found, max(value, alone))
    return found


def _some(times: UnitTimes, places: Ints) -> UnitTimes:
    """The same on some of the devices."""

    def lines(every: Lines) -> Lines:
        return Lines(every.base[places], every.per_share[places])

    return replace(
        times,
        cluster=part_of(times.cluster, places.tolist()),
        forward=lines(times.forward),
        input_grad=lines(times.input_grad),
        weight_grad=lines(times.weight_grad),
        step=lines(times.step),
    )
