"""One call for all planners."""

from typing import TypedDict, Unpack

from penstock.cluster.types import Cluster
from penstock.plan.shapes import Shape
from penstock.plan.types import Plan
from penstock.planners import find_planner
from penstock.planners.problem import Problem
from penstock.profile.types import Profile
from penstock.schedules import find_schedule

DEFAULT_PLANNER = "balanced"


class Options(TypedDict, total=False):
    """What can be asked of a plan.

    The planner decides on the schedule, and the schedule on shape and segments a device, unless they are given.
    """

    planner: str
    schedule: str | None
    rows: int | None
    split_backward: bool
    recompute: bool
    num_stages: int | None
    num_chunks: int | None
    shape: Shape | None
    profile_source: str
    cluster_source: str


def make_problem(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Problem:
    """The problem that a planner is asked."""
    order = find_schedule(options.get("schedule") or find_planner(options.get("planner", DEFAULT_PLANNER)).schedule)
    shape = options.get("shape") or order.shape
    chunks = options.get("num_chunks")
    return Problem(
        profile=profile,
        cluster=cluster,
        num_microbatches=num_microbatches,
        rows=options.get("rows"),
        schedule=order.name,
        split_backward=options.get("split_backward", False),
        recompute=options.get("recompute", False),
        num_stages=options.get("num_stages"),
        num_chunks=(1 if shape is Shape.STRAIGHT else min(2, profile.num_units)) if chunks is None else chunks,
        shape=shape,
        profile_source=options.get("profile_source", ""),
        cluster_source=options.get("cluster_source", ""),
    )


def plan(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Plan:
    """A plan for a model on a cluster; `Options` says what can be asked for.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.profile.load import load_profile
    >>> made = plan(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8, schedule="zb_h1")
    >>> made.planner, made.schedule, made.num_segments
    ('balanced', 'zb_h1', 2)
    """
    method = find_planner(options.get("planner", DEFAULT_PLANNER))
    return method.plan(make_problem(profile, cluster, num_microbatches, **options))
