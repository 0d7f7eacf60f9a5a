"""How many devices? Plans for 1, 2, 3 ... devices of a cluster, and the fewest that are quick enough.

Which devices: the set grows from the quickest device along SPP's order of the devices (device_order.py), each time to
the side with the stronger link, then with the quicker device. So a host is filled before the next one is begun, and
every set contains the smaller ones. On a cluster of equal hosts these are its first n devices.

With a target, a number of devices whose proven lower bound is over the target is not planned: it cannot do. Where the
range is large, powers of two and the ends are looked at, then the numbers between the last that misses the target and
the first that meets it are halved. That takes more devices to be no slower, which holds for the best plans, and nearly
so for those that are found.

Cost: the planner's, for each number of devices that is planned.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from penstock.cluster import Cluster, part_of
from penstock.errors import InputError
from penstock.plan import Origin, Plan
from penstock.planners.bounds import lower_bound
from penstock.planners.methods.spp import order_devices, weights
from penstock.planners.outcome import Outcome, alone_s, outcome_of
from penstock.planners.problem import Problem

ALL_COUNTS = 16
"""Up to so many numbers of devices are all looked at."""


class DeviceCount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of devices, and what came of it."""

    num_devices: int
    devices: tuple[str, ...]
    bound_s: float
    ideal_speed_up: float
    """How many times as fast as the quickest device they are together."""
    speed_up: float | None = None
    """Over the quickest device of the cluster alone, whatever memory that would take."""
    plan: Plan | None = None
    """None: by its bound it cannot meet the target. It is for the part of the cluster: see `for_whole`."""
    outcome: Outcome | None = None

    @property
    def efficiency(self) -> float | None:
        """The speed-up over what these devices could do at best."""
        return self.speed_up / self.ideal_speed_up if self.speed_up is not None else None

    def meets(self, under_s: float) -> bool:
        """Whether there is a plan that fits and takes less than so long."""
        return self.outcome is not None and self.outcome.fits and self.outcome.iteration_s < under_s


class DeviceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that were looked at, and the best: the fewest that meet the target, or the fastest without one."""

    best: DeviceCount | None
    """None: no number of devices meets the target."""
    counts: tuple[DeviceCount, ...]


def choose_devices(
    problem: Problem, counts: Sequence[int], plan_on: Callable[[Cluster], Plan], *, under_s: float | None = None
) -> DeviceChoice:
    """Plan for several numbers of devices of the problem's cluster."""
    wanted = sorted(set(counts))
    order = growing_order(problem)
    if not wanted or not 1 <= wanted[0] <= wanted[-1] <= len(order):
        raise InputError(f"the cluster has {len(order)} devices: ask for at least 1 and at most {len(order)} of them")
    looker = _Looker(problem, order, plan_on, under_s)
    if under_s is None or len(wanted) <= ALL_COUNTS:
        for count in wanted if len(wanted) <= ALL_COUNTS else spread(wanted):
            if looker.look(count) and under_s is not None:
                break  # more devices than needed
    else:
        _halve(wanted, looker)
    found = tuple(looker.seen[count] for count in sorted(looker.seen))
    if under_s is not None:
        return DeviceChoice(best=next((item for item in found if item.meets(under_s)), None), counts=found)
    best = min((item for item in found if item.outcome), key=lambda item: item.outcome.rank if item.outcome else ())
    return DeviceChoice(best=best, counts=found)


def spread(wanted: Sequence[int]) -> list[int]:
    """The powers of two among these, and the ends.

    >>> spread(range(3, 40))
    [3, 4, 8, 16, 32, 39]
    """
    return [count for count in wanted if count in (wanted[0], wanted[-1]) or count & (count - 1) == 0]


def growing_order(problem: Problem) -> list[int]:
    """The devices in the order in which they are taken."""
    cluster, seconds = problem.cluster, np.array(alone_s(problem))
    row = order_devices(cluster)
    strength = weights(cluster)
    left = right = int(np.argmin(seconds[row]))
    found = [row[left]]
    while len(found) < len(row):
        sides = []
        if right + 1 < len(row):
            sides.append((-strength[row[right], row[right + 1]], seconds[row[right + 1]], 0))
        if left > 0:
            sides.append((-strength[row[left], row[left - 1]], seconds[row[left - 1]], 1))
        if min(sides)[2] == 0:
            right += 1
            found.append(row[right])
        else:
            left -= 1
            found.append(row[left])
    return found


def device_part(problem: Problem, count: int) -> Cluster:
    """So many devices of the problem's cluster."""
    return part_of(problem.cluster, growing_order(problem)[:count])


def for_whole(plan: Plan, cluster: Cluster, source: str = "") -> Plan:
    """A plan for a part of a cluster as one for the whole of it, whose other devices stay idle."""
    return msgspec.structs.replace(plan, cluster=Origin(name=cluster.name, digest=cluster.digest, source=source))


class _Looker:
    """Plans numbers of devices, each once."""

    def __init__(
        self, problem: Problem, order: Sequence[int], plan_on: Callable[[Cluster], Plan], under_s: float | None
    ) -> None:
        self._problem = problem
        self._order = order
        self._plan_on = plan_on
        self._under_s = under_s
        self._alone = alone_s(problem)
        self.seen: dict[int, DeviceCount] = {}

    def look(self, count: int) -> bool:
        """Look at a number of devices; whether it meets the target."""
        if count not in self.seen:
            self.seen[count] = self._count(count)
        return self._under_s is not None and self.seen[count].meets(self._under_s)

    def _count(self, count: int) -> DeviceCount:
        problem, quickest = self._problem, min(self._alone)
        places = self._order[:count]
        part = part_of(problem.cluster, places)
        bound = lower_bound(problem.profile, part, problem.num_microbatches, problem.micro_batch_size)
        ideal = sum(quickest / self._alone[place] if self._alone[place] > 0 else 1.0 for place in places)
        names = tuple(device.name for device in part.devices)
        found = DeviceCount(num_devices=count, devices=names, bound_s=bound.seconds, ideal_speed_up=ideal)
        if self._under_s is not None and bound.seconds >= self._under_s:
            return found
        plan = self._plan_on(part)
        outcome = outcome_of(plan, problem.profile, part)
        speed_up = quickest / outcome.iteration_s if outcome.iteration_s > 0 else None
        return msgspec.structs.replace(found, plan=plan, outcome=outcome, speed_up=speed_up)


def _halve(wanted: Sequence[int], looker: _Looker) -> None:
    """Find where the target begins to be met."""
    low, high = -1, len(wanted)
    for count in spread(wanted):
        place = wanted.index(count)
        if looker.look(count):
            high = place
            break
        low = place
    if high == len(wanted):
        return
    while high - low > 1:
        middle = (low + high) // 2
        if looker.look(wanted[middle]):
            high = middle
        else:
            low = middle
