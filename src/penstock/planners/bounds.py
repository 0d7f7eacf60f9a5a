"""Lower bounds: no plan is faster, whatever it does. So the gap to a plan says how much could still be gained.

They hold for every plan that can be written down, in any order of jobs: groups with any shares, backwards moved or not,
several segments a device, recomputation. With `replication` or `moved` off they hold, and are tighter, for plans
whose groups have one device, or whose forward and backward groups are the same. The proofs are beside the parts:
`bounds_work.py` and `bounds_chain.py`. All-reduces, the return of parameters, memory limits and transfers that a plan
need not make are not counted. Shares add up to 1 within 1e-9 (plan/types.py), and so do the bounds hold.

Cost: O(units devices) for each of some hundred prices; without replication O(units devices^2) more.
"""

import msgspec

from penstock.cluster.types import Cluster
from penstock.planners.bounds_chain import chain_bound, ways
from penstock.planners.bounds_work import fill_bound, packing_bound, work_bound
from penstock.planners.problem import Problem
from penstock.planners.unit_times import unit_times
from penstock.profile.types import Profile


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
    rows: int | None = None,
    *,
    replication: bool = True,
    moved: bool = True,
) -> Bound:
    """Seconds that no plan's iteration can be under.

    With `replication` off: no plan whose groups all have one device. With `moved` off: no plan whose forward and
    backward groups are all the same.
    """
    times = unit_times(Problem(profile, cluster, num_microbatches, rows=rows))
    parts = [
        BoundPart("work", work_bound(times, moved=moved), "all work, divided over all devices as is best"),
        BoundPart(
            "chain",
            chain_bound(times, replication=replication, moved=moved),
            "one micro-batch through all units and back, and all micro-batches through the slowest job on that way",
        ),
    ]
    if not replication:
        why = "all work, and the waits of devices before their first and after their last micro-batch"
        parts.append(BoundPart("fill", fill_bound(times, ways(times), moved=moved), why))
        why = "jobs that cannot be divided, on as many devices as there are"
        parts.append(BoundPart("packing", packing_bound(times, moved=moved), why))
    largest = max(parts, key=lambda part: part.seconds)
    return Bound(largest.seconds, largest.why, tuple(parts))
