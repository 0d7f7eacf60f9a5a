"""Every kind of model by every planner on one to four ranks: the numbers of one process."""

from functools import cache
from typing import Any

import pytest
import torch

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
from runtime.comparing import check, keeps_every_order
from runtime.models import KINDS, profile_of
from runtime.training import Job, train_all
from runtime.world import World

torch.set_num_threads(1)

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


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", list(KINDS))
def test_same_numbers_as_one_process(world: World, kind: str, num_ranks: int) -> None:
    profile, cluster = profile_of(kind), cluster_of(num_ranks)
    jobs = [Job(kind, plan, profile, cluster) for plan in plans(kind, num_ranks)]
    results = world.run(num_ranks, train_all, jobs)
    for number, job in enumerate(jobs):
        check(job, [ranks[number] for ranks in results], exact=keeps_every_order(job))


def test_the_grid_has_everything_in_it() -> None:
    made = [(kind, num, plan) for kind in KINDS for num in ASKED for plan in plans(kind, num)]
    segments = [segment for _, _, plan in made for segment in plan.segments]
    assert any(segment.is_moved for segment in segments)
    assert any(segment.recompute for segment in segments)
    assert any(segment.num_replicas > 1 for segment in segments)
    shared = [plan for kind, _, plan in made if kind == "vgg" and any(s.num_replicas > 1 for s in plan.segments)]
    assert len(shared) > 5
    assert any(len({segment.num_replicas for segment in plan.segments}) > 1 for _, _, plan in made)
    assert any(plan.num_segments > num for _, num, plan in made)
    profiles = {kind: profile_of(kind) for kind in KINDS}
    exact = [keeps_every_order(Job(kind, plan, profiles[kind], cluster_of(num))) for kind, num, plan in made]
    assert 20 < sum(exact) < len(exact) - 10
