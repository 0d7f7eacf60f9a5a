"""Plans of every planner on one to four ranks, for every test model."""

from enum import Enum, auto
from functools import cache
from typing import Any

import penstock
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan
from penstock.planners.registry import PLANNERS
from penstock.profile.types import Profile
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.runtime.layout.layout import make_layout
from penstock.runtime.layout.replica_sync_proof import check_replica_sync
from penstock.schedules.registry import SCHEDULES
from penstock.schedules.registry import schedule as schedule_of
from tests.support.runtime.models import KINDS, profile_of

NUM_MICROBATCHES = 4

Request = tuple[str, str | None, dict[str, Any]]
"""A planner, a schedule (None: the planner's default), and options."""

RANKS = (1, 2, 3, 4)
MORE: dict[int, list[Request]] = {
    1: [("balanced", "zb_h1", {})],
    2: [
        ("uniform", "gpipe", {}),
        ("balanced", "zb_h1", {}),
        ("balanced", "zb_v", {}),
        ("uniform", "interleaved", {}),
        ("bipartition", "auto", {}),
    ],
    3: [
        ("uniform", "zb_h1", {}),
        ("balanced", "1f1b", {"recompute": True}),
        ("data_parallel", "zb_h1", {}),
        ("pipedream", "auto", {}),
    ],
    4: [
        ("balanced", "auto", {}),
        ("balanced", "auto_fused", {}),
        ("balanced", "zb_v", {"recompute": True}),
        ("bipartition", "zb_h1", {}),
    ],
}
"""In addition to every planner with its default schedule."""


class Extent(Enum):
    """The extent of the grid."""

    FEW = auto()
    EVERY_PLANNER = auto()
    WHOLE = auto()
    """Every planner with every schedule."""


def requests(num_ranks: int, extent: Extent) -> list[Request]:
    """The plan requests for a number of ranks."""
    schedules: dict[Extent, list[str | None]] = {Extent.FEW: [], Extent.EVERY_PLANNER: [None]}
    chosen = schedules.get(extent, [None, *SCHEDULES])
    return [*((name, schedule, _options(name)) for name in PLANNERS for schedule in chosen), *MORE[num_ranks]]


def _options(planner: str) -> dict[str, Any]:
    return {"work": 20} if planner == "auto" else {}


@cache
def cluster_of(num_devices: int) -> Cluster:
    """Devices of different speeds, and links slow enough that pipelines pay."""
    wire = Wire(bandwidth=2e6, latency_s=1e-4)
    devices = tuple(
        Device(name=f"d{number}", host="h", kind="k", speed=1.0 + 0.5 * (number % 2)) for number in range(num_devices)
    )
    return Cluster(name="small", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)


def can_sync(plan: Plan, profile: Profile, cluster: Cluster) -> bool:
    """Whether batch norm over replicas cannot deadlock."""
    costs = price(plan, profile, cluster)
    try:
        check_replica_sync(
            prove(lower(schedule_of(costs), costs), costs), make_layout(costs, find_blocks(KINDS["vgg"].model()))
        )
    except InputError:
        return False
    return True


@cache
def plans(kind: str, num_ranks: int, extent: Extent = Extent.EVERY_PLANNER) -> tuple[Plan, ...]:
    profile, cluster = profile_of(kind), cluster_of(num_ranks)
    result: list[Plan] = []
    for planner, schedule, options in requests(num_ranks, extent):
        plan = penstock.plan(profile, cluster, NUM_MICROBATCHES, planner=planner, schedule=schedule, **options)
        if kind == "vgg" and not can_sync(plan, profile, cluster):
            # See test_meetings.py.
            continue
        if all((plan.stages, plan.schedule) != (other.stages, other.schedule) for other in result):
            result.append(plan)
    return tuple(result)
