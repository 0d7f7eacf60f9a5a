"""Device counts: plans for 1, 2, 3 ... devices of a cluster, and the fewest that meet a target.

The set of devices grows from the fastest device along SPP's order of the devices (device_order.py), each time to the
side with the faster link, then with the faster device. So it fills a host before the next one, and every set contains
the smaller ones. On a cluster of equal hosts the sets are its first n devices.

With a target, a number of devices is not planned if its lower bound exceeds the target. If the range is large, the
study plans powers of two and both ends, and then bisects between the last number that misses the target and the first
that meets it. Bisection assumes that more devices are not slower, which holds for optimal plans and nearly for others.

Cost: one run of the planner for each number of devices.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from penstock.cluster import Cluster, select_devices
from penstock.errors import InputError
from penstock.plan import Origin, Plan
from penstock.planners.bounds import lower_bound
from penstock.planners.methods.spp import link_weights, order_devices
from penstock.planners.outcome import Outcome, outcome_of, single_device_s
from penstock.planners.problem import Problem

ALL_COUNTS = 16
"""Up to this many numbers of devices are all planned."""


class DeviceCount(msgspec.Struct, frozen=True, kw_only=True):
    """A number of devices, with its plan and outcome."""

    num_devices: int
    devices: tuple[str, ...]
    bound_s: float
    ideal_speed_up: float
    """The summed speed of the devices, relative to the fastest device of the cluster."""
    speed_up: float | None = None
    """Speed-up over the fastest device of the cluster alone, with unlimited memory."""
    plan: Plan | None = None
    """The plan for this part of the cluster (see `retarget_to_cluster`); None if the bound exceeds the target."""
    outcome: Outcome | None = None

    @property
    def efficiency(self) -> float | None:
        """The speed-up relative to the ideal one."""
        return self.speed_up / self.ideal_speed_up if self.speed_up is not None else None

    def meets(self, under_s: float) -> bool:
        """Whether the plan fits into memory and takes less than `under_s`."""
        return self.outcome is not None and self.outcome.fits and self.outcome.iteration_s < under_s


class DeviceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of devices of a study, and the best: the fewest that meet the target, or the fastest without one."""

    best: DeviceCount | None
    """None if no number of devices meets the target."""
    counts: tuple[DeviceCount, ...]


def choose_devices(
    problem: Problem, counts: Sequence[int], plan_on: Callable[[Cluster], Plan], *, under_s: float | None = None
) -> DeviceChoice:
    """Plan for several numbers of devices of the problem's cluster.

    Args:
        problem: The problem on the whole cluster.
        counts: The numbers of devices.
        plan_on: Plans on a part of the cluster.
        under_s: The target for the iteration time.

    Returns:
        The planned numbers, and the best one.

    Raises:
        InputError: If a number of devices is out of range.
    """
    counts = sorted(set(counts))
    order = growth_order(problem)
    if not counts or not 1 <= counts[0] <= counts[-1] <= len(order):
        raise InputError(f"number of devices must be at least 1 and at most {len(order)}, the size of the cluster")
    planner = _CountPlanner(problem, order, plan_on, under_s)
    if under_s is None or len(counts) <= ALL_COUNTS:
        for count in counts if len(counts) <= ALL_COUNTS else powers_and_ends(counts):
            if planner.plan_for(count) and under_s is not None:
                break  # more devices than needed
    else:
        _halve(counts, planner)
    results = tuple(planner.results[count] for count in sorted(planner.results))
    if under_s is not None:
        return DeviceChoice(best=next((item for item in results if item.meets(under_s)), None), counts=results)
    best = min((item for item in results if item.outcome), key=lambda item: item.outcome.rank if item.outcome else ())
    return DeviceChoice(best=best, counts=results)


def powers_and_ends(counts: Sequence[int]) -> list[int]:
    """The powers of two among some counts, and both ends.

    >>> powers_and_ends(range(3, 40))
    [3, 4, 8, 16, 32, 39]
    """
    return [count for count in counts if count in (counts[0], counts[-1]) or count & (count - 1) == 0]


def growth_order(problem: Problem) -> list[int]:
    """Indices of the devices in the order in which the set of devices grows."""
    cluster, seconds = problem.cluster, np.array(single_device_s(problem))
    row = order_devices(cluster)
    strength = link_weights(cluster)
    left = right = int(np.argmin(seconds[row]))
    order = [row[left]]
    while len(order) < len(row):
        sides = []
        if right + 1 < len(row):
            sides.append((-strength[row[right], row[right + 1]], seconds[row[right + 1]], 0))
        if left > 0:
            sides.append((-strength[row[left], row[left - 1]], seconds[row[left - 1]], 1))
        if min(sides)[2] == 0:
            right += 1
            order.append(row[right])
        else:
            left -= 1
            order.append(row[left])
    return order


def select_cluster(problem: Problem, count: int) -> Cluster:
    """The part of the problem's cluster with the first `count` devices of the growth order."""
    return select_devices(problem.cluster, growth_order(problem)[:count])


def retarget_to_cluster(plan: Plan, cluster: Cluster, source: str = "") -> Plan:
    """Turn a plan for a part of a cluster into one for the whole cluster, whose other devices stay idle."""
    return msgspec.structs.replace(plan, cluster=Origin(name=cluster.name, digest=cluster.digest, source=source))


class _CountPlanner:
    """Plans each number of devices once."""

    def __init__(
        self, problem: Problem, order: Sequence[int], plan_on: Callable[[Cluster], Plan], under_s: float | None
    ) -> None:
        self._problem = problem
        self._order = order
        self._plan_on = plan_on
        self._under_s = under_s
        self._alone = single_device_s(problem)
        self.results: dict[int, DeviceCount] = {}

    def plan_for(self, count: int) -> bool:
        """Plan for a number of devices; return whether it meets the target."""
        if count not in self.results:
            self.results[count] = self._count(count)
        return self._under_s is not None and self.results[count].meets(self._under_s)

    def _count(self, count: int) -> DeviceCount:
        problem, quickest = self._problem, min(self._alone)
        devices = self._order[:count]
        part = select_devices(problem.cluster, devices)
        bound = lower_bound(problem.profile, part, problem.num_microbatches, problem.micro_batch_size)
        ideal = sum(quickest / self._alone[index] if self._alone[index] > 0 else 1.0 for index in devices)
        names = tuple(device.name for device in part.devices)
        unplanned = DeviceCount(num_devices=count, devices=names, bound_s=bound.seconds, ideal_speed_up=ideal)
        if self._under_s is not None and bound.seconds >= self._under_s:
            return unplanned
        plan = self._plan_on(part)
        outcome = outcome_of(plan, problem.profile, part)
        speed_up = quickest / outcome.iteration_s if outcome.iteration_s > 0 else None
        return msgspec.structs.replace(unplanned, plan=plan, outcome=outcome, speed_up=speed_up)


def _halve(counts: Sequence[int], planner: _CountPlanner) -> None:
    """Bisect for the fewest devices that meet the target."""
    low, high = -1, len(counts)
    for count in powers_and_ends(counts):
        index = counts.index(count)
        if planner.plan_for(count):
            high = index
            break
        low = index
    if high == len(counts):
        return
    while high - low > 1:
        middle = (low + high) // 2
        if planner.plan_for(counts[middle]):
            high = middle
        else:
            low = middle
