"""Lower bounds: no plan is faster, whatever it does. So the gap to a plan says how much could still be gained.

They hold for every plan that can be written down, in any order of jobs: groups with any shares, backwards moved or not,
several stages a device, recomputation. With `replication` or `moved` off they hold, and are tighter, for plans
whose groups have one device, or whose forward and backward groups are the same. The proofs are beside the parts:
`bounds_work.py`, `bounds_chain.py`, `bounds_network.py`; without replication also `bounds_packing.py` and
`bounds_straight.py`. Memory limits are not counted, nor reductions but for what must pass between parts of the cluster.
Shares add up to 1 within 1e-9 (plan/types.py), and so do the bounds hold.

The last ones start from the largest of those before: where they find nothing better, they repeat it.

Cost: O(units devices) for each of some hundred prices, O(units^2) for each of some hundred times that are tried, and
without replication O(units devices^2 + units^2 devices) for each of some dozens. Each leaves out what takes too long.
"""

import msgspec

from penstock.cluster import Cluster
from penstock.planners.bounds.chain import chain_bound, ways
from penstock.planners.bounds.network import network_bound
from penstock.planners.bounds.packing import packing_bound
from penstock.planners.bounds.unit_seconds import UnitTimes, unit_times
from penstock.planners.bounds.unreplicated import straight_bound
from penstock.planners.bounds.work import fill_bound, least_waits, work_bound
from penstock.planners.problem import Problem
from penstock.profile import Profile

WORK = "all work, divided over all devices as is best"
CHAIN = "one micro-batch through all units and back, and all micro-batches through the slowest job on that way"
FILL = "all work, and the waits of devices before their first and after their last micro-batch"
PACKING = "jobs that cannot be divided, on as many devices as there are"
NETWORK = "parts of the cluster do their own work, or send each other what passes between units, or parameters"
TOGETHER = "units stay on devices that are joined fast enough for what passes between them"


class BoundPart(msgspec.Struct, frozen=True):
    """One bound, and why it holds."""

    name: str
    seconds: float
    why: str


class Bound(msgspec.Struct, frozen=True):
    """The largest of several bounds on the seconds of an iteration."""

    seconds: float
    reason: str
    parts: tuple[BoundPart, ...]


def lower_bound(
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    micro_batch_size: int | None = None,
    *,
    replication: bool = True,
    moved: bool = True,
) -> Bound:
    """Seconds that no plan's iteration can be under.

    With `replication` off: no plan whose groups all have one device. With `moved` off: no plan whose forward and
    backward groups are all the same.
    """
    times = unit_times(Problem(profile, cluster, num_microbatches, micro_batch_size=micro_batch_size))
    parts = _shared_parts(times, moved) if replication else _straight_parts(times, moved)
    parts.append(BoundPart("network", network_bound(times, _largest(parts), moved=moved), NETWORK))
    largest = max(parts, key=lambda part: part.seconds)
    return Bound(largest.seconds, largest.why, tuple(parts))


def _shared_parts(times: UnitTimes, moved: bool) -> list[BoundPart]:
    return [
        BoundPart("work", work_bound(times, moved=moved), WORK),
        BoundPart("chain", chain_bound(times, replication=True, moved=moved), CHAIN),
    ]


def _straight_parts(times: UnitTimes, moved: bool) -> list[BoundPart]:
    way = ways(times)
    parts = [
        BoundPart("work", work_bound(times, moved=moved), WORK),
        BoundPart("chain", chain_bound(times, replication=False, moved=moved), CHAIN),
        BoundPart("fill", fill_bound(times, way, moved=moved), FILL),
        BoundPart("packing", packing_bound(times, least_waits(times, way), moved=moved), PACKING),
    ]
    together = straight_bound(times, _largest(parts), lambda some: _largest(_straight_parts(some, moved)), moved=moved)
    return [*parts, BoundPart("together", together, TOGETHER)]


def _largest(parts: list[BoundPart]) -> float:
    return max(part.seconds for part in parts)
