"""Lower bounds for slow networks, with replication: parts of the devices, and what must pass between them.

Divide the devices into parts that are joined well inside: hosts, or what links above some speed join. Suppose that a
plan takes at most T seconds. A unit is *at home* in a part if all rows of its forward and of its backward are there.

*Not at home.* Either the backward is in several parts: the ring of its gradients leaves and enters two of them, and
carries at least the unit's parameters over every link. Or a forward is in another part than the whole backward: the
parameters go back there. So they pass from part to part once (twice if backwards are not moved), and not before all
forwards, and the I of all units behind, are done for all micro-batches: `release_s`, by the speed of all devices. Over
the fastest link between parts they must still be through at T. Of a run of such units, all parameters together must
pass what leaves and enters all parts.

*At home.* A run of units that are at home in one part has all its work done there: at most T times the part's speed.

*Between.* If two units are at home in different parts, and none between them is at home, all rows leave the one part
and enter the other, forward and backward: at least the smallest cut on the way, all micro-batches, two directions, in
both parts. If the units are neighbours, these pass between two parts. Take a run of units that are not at home, next to
one that is at home in part c. There is room in c for some of the run's work only. If it does the share y of its forward
work, some unit of the run has at most y of its rows in c, and the other 1 - y must cross into c on the way; likewise
backward. So at least the smallest cut of the run passes, times what both y leave over; and if the run lies between two
units at home in c, then two different cuts. What passes in and out of one part, on both sides of a run at home in it,
is at most T times what leaves and enters it a second.

*Backwards at home.* If backwards are moved, all this also holds with "at home" said of backwards only. Then who is not
at home has its gradients reduced between parts, which is twice; only backwards count where rows cross. The part of a
backward also does the forward, for the first time or again, except for rows whose saved tensors come in from outside:
so much work at most as those bytes can stand for (`RELIEF`; units with small saved tensors are left out).

A dynamic program over the units asks whether any division keeps to all of this; T is found by halving. Room and rates
are those of the best part, different runs in one part are not added up: less tight, and still true.

Cost: O(units^2) for each of some twenty T and at most `MOST_DIVISIONS` divisions. With more than `MOST_DEVICES` or
`MOST_UNITS` it is left out.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.cluster import Cluster
from penstock.planners.bounds.bisection import least_possible
from penstock.planners.bounds.unit_seconds import UnitTimes

MOST_DEVICES = 128
MOST_UNITS = 2000
MOST_DIVISIONS = 6
RELIEF = 0.05
"""How much of a part's work saved tensors may take off it, as a share of its speed, where that is counted at all."""
MOST_PAIRS = 400
"""With more pairs of parts, what leaves and enters a part stands in for what passes between two."""


@dataclass(frozen=True, eq=False)
class Homes:
    """What it means to be at home, and what it costs not to be: arrays over units."""

    work: Floats
    """Priced seconds that a unit takes at home."""
    forward: Floats
    backward: Floats
    """Priced seconds of its rows where it is not at home."""
    crossing: Floats
    """Half the bytes that pass if all rows go from one home to another behind the unit."""
    times_sent: int
    """How often its parameters pass between parts if it is not at home."""
    together: bool
    """Whether a row's forward and backward are in one place."""
    room_rate: float
    """Priced seconds a second of the best part."""
    pair_share: float
    """Which share of what passes between two homes in one direction `crossing` is."""


class Divided:
    """A problem on devices divided into parts, and the question whether an iteration can take so long."""

    def __init__(self, times: UnitTimes, part: Ints, *, moved: bool) -> None:
        num = times.num_microbatches
        seconds = [num * lines.whole for lines in (times.forward, times.input_grad, times.weight_grad)]
        forward, backward = seconds[0], seconds[1] + seconds[2] + times.step.whole
        all_s = (forward + backward).sum(axis=1)
        price = (all_s.min() / all_s if all_s.min() > 0 else np.ones(len(all_s)))[:, None]
        ahead, inputs, back = ((price * jobs).min(axis=0) for jobs in (forward, seconds[1], backward))
        self.release_s = (ahead.sum() + inputs.sum() - np.cumsum(inputs)) / float(price.sum())
        self.parameters = times.returned_bytes
        rates = _rates(times.cluster, part)
        self.part_rate, self.all_rate, self.pair_rate = rates.part, rates.every, rates.pair
        between = part[:, None] != part[None, :]
        self.link_rate = float(times.rate[between].max())
        self.latency_s = float(times.cluster.latency_s[between].min())
        speed, crossing = np.bincount(part, price[:, 0]), num * times.cut_bytes
        both = Homes(ahead + back, ahead, back, crossing, 1 if moved else 2, not moved, float(speed.max()), 1.0)
        self.homes = [both]
        if moved and np.isfinite(rates.incoming).all():
            per_byte = RELIEF * float((speed / rates.incoming).min())
            kept = np.where(ahead <= per_byte * num * times.saved_bytes, ahead, 0.0)
            room = float((speed + per_byte * rates.incoming).max())
            self.homes.append(Homes(kept + back, np.zeros_like(back), back, crossing / 2, 2, True, room, 0.5))
        self.most_s = float((ahead + back).sum() / speed.max())

    def possible(self, limit_s: float) -> bool:
        """Whether nothing says that an iteration cannot take at most so long."""
        return all(self._possible(homes, limit_s) for homes in self.homes)

    def _possible(self, homes: Homes, limit_s: float) -> bool:
        from penstock.planners.bounds.network_kernel import divisible

        # A ring has at least two rounds, each with its latency; parameters that go back may be none at all.
        rounds = 2 if homes.times_sent == 2 else 0
        through_s = self.parameters / self.link_rate + rounds * self.latency_s
        return bool(
            divisible(
                homes.work,
                homes.forward,
                homes.backward,
                homes.crossing,
                2 * homes.times_sent * self.parameters,
                self.release_s,
                self.release_s + through_s <= limit_s,
                not homes.together,
                limit_s * homes.room_rate,
                limit_s * homes.pair_share * self.pair_rate,
                limit_s * self.part_rate,
                limit_s,
                self.all_rate,
            )
        )


def network_bound(times: UnitTimes, least_s: float, *, moved: bool) -> float:
    """The largest such bound over some divisions, if it is above `least_s`, which is one already."""
    if not 1 < times.cluster.num_devices <= MOST_DEVICES or times.num_units > MOST_UNITS:
        return least_s
    for part in divisions(times):
        problem = Divided(times, part, moved=moved)
        least_s = least_possible(problem.possible, least_s, problem.most_s)
    return least_s


def divisions(times: UnitTimes) -> list[Ints]:
    """Ways to divide the devices: by host, each alone, and what links above some speeds join, fast to slow."""
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
    chosen = {round(number) for number in np.linspace(0, len(levels) - 1, MOST_DIVISIONS - 2)} if levels else set()
    candidates = [times.cluster.host_index, np.arange(num_devices), *(levels[number] for number in chosen)]
    found = {tuple(np.unique(part, return_inverse=True)[1].tolist()) for part in candidates}
    return [np.array(part) for part in sorted(found) if max(part) > 0]


class Rates(NamedTuple):
    """Bytes a second over the borders of the parts."""

    part: float
    """In and out of the best part."""
    every: float
    """In and out of all parts."""
    pair: float
    """From one part to another, at the best."""
    incoming: Floats
    """Into each part."""


def _rates(cluster: Cluster, part: Ints) -> Rates:
    parts = [part == number for number in range(int(part.max()) + 1)]
    incoming = np.array([_rate(cluster, ~inside, inside) for inside in parts])
    each = incoming + np.array([_rate(cluster, inside, ~inside) for inside in parts])
    if len(parts) ** 2 > MOST_PAIRS:
        return Rates(each.max(), each.sum(), each.max(), incoming)
    pairs = [_rate(cluster, one, other) for one in parts for other in parts if one is not other]
    return Rates(each.max(), each.sum(), max(pairs), incoming)


def _rate(cluster: Cluster, sources: Bools, targets: Bools) -> float:
    """Bytes a second from some devices to others: over links, and the interfaces of either end."""
    host = cluster.host_index
    away = host[:, None] != host[None, :]
    links = np.where(sources[:, None] & targets[None, :], cluster.bandwidth, 0.0)
    within = float(links[~away].sum())
    interface = np.array([item.interface_bandwidth or np.inf for item in cluster.hosts])
    network = np.where(away, links, 0.0)
    leaving = np.minimum(np.bincount(host, network.sum(axis=1), len(interface)), interface)
    entering = np.minimum(np.bincount(host, network.sum(axis=0), len(interface)), interface)
    return within + float(min(leaving.sum(), entering.sum()))
