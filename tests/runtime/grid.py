"""Plans of every planner on one to four ranks, for every kind of model of the tests."""

from functools import cache
from typing import Any

import penstock
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.plan.pricing import price
from penstock.plan.types import Plan
from penstock.profile.types import Profile
from penstock.program.lowering import lower
from penstock.program.proof import prove
from penstock.runtime.layout import make_layout
from penstock.runtime.meeting_check import check_meetings
from penstock.schedules import schedule as schedule_of
from runtime.models import KINDS, profile_of

NUM_MICROBATCHES = 4

ASKED: dict[int, list[tuple[str, str | None, dict[str, Any]]]] = {
    1: [("balanced", "1f1b", {}), ("balanced", "zb_h1", {}), ("data_parallel", None, {})],
    2: [
        ("uniform", "gpipe", {}),
        ("balanced", "zb_h1", {}),
        ("balanced", "zb_v", {}),
        ("uniform", "interleaved", {}),
        ("data_parallel", None, {}),
        ("pipedream", None, {}),
        ("dapple", None, {}),
        ("spp", None, {}),
        ("bipartition", "auto", {}),
        ("auto", None, {"work": 20}),
    ],
    3: [
        ("uniform", "zb_h1", {}),
        ("balanced", "1f1b", {"recompute": True}),
        ("data_parallel", "zb_h1", {}),
        ("pipedream", "auto", {}),
        ("dapple", None, {}),
        ("spp", None, {}),
        ("bipartition", "1f1b", {}),
    ],
    4: [
        ("balanced", "auto", {}),
        ("balanced", "zb_v", {"recompute": True}),
        ("pipedream", None, {}),
        ("spp", None, {}),
        ("bipartition", "zb_h1", {}),
        ("auto", None, {"work": 20}),
    ],
}


@cache
def cluster_of(num_devices: int) -> Cluster:
    """Devices of different speeds, and links slow enough that pipelines pay."""
    wire = Wire(bandwidth=2e6, latency_s=1e-4)
    devices = tuple(
        Device(name=f"d{number}", host="h", kind="k", speed=1.0 + 0.5 * (number % 2)) for number in range(num_devices)
    )
    return Cluster(name="small", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)


def can_meet(plan: Plan, profile: Profile, cluster: Cluster) -> bool:
    """Whether batch norms over rows on several devices cannot make these wait for each other for ever."""
    costs = price(plan, profile, cluster)
    try:
        check_meetings(
            prove(lower(schedule_of(costs), costs), costs), make_layout(costs, find_blocks(KINDS["vgg"].model()))
        )
    except InputError:
        return False
    return True


@cache
def plans(kind: str, num_ranks: int) -> tuple[Plan, ...]:
    profile, cluster = profile_of(kind), cluster_of(num_ranks)
    found: list[Plan] = []
    for planner, schedule, options in ASKED[num_ranks]:
        plan = penstock.plan(profile, cluster, NUM_MICROBATCHES, planner=planner, schedule=schedule, **options)
        if kind == "vgg" and not can_meet(plan, profile, cluster):
            # See test_meetings.py.
            continue
        if all((plan.segments, plan.schedule) != (other.segments, other.schedule) for other in found):
            found.append(plan)
    return tuple(found)
