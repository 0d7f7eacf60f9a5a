"""One call for all planners."""

from penstock.cluster.types import Cluster
from penstock.plan.shapes import Shape
from penstock.plan.types import Plan
from penstock.planners import find_planner
from penstock.planners.problem import Problem
from penstock.profile.types import Profile
from penstock.schedules import find_schedule

DEFAULT_PLANNER = "balanced"


def make_problem(
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    *,
    planner: str = DEFAULT_PLANNER,
    schedule: str | None = None,
    rows: int | None = None,
    split_backward: bool = False,
    recompute: bool = False,
    num_stages: int | None = None,
    num_chunks: int | None = None,
    shape: Shape | None = None,
    profile_source: str = "",
    cluster_source: str = "",
) -> Problem:
    """The problem that a planner is asked.

    The planner decides on the schedule, and the schedule on shape and segments a device, unless they are given.
    """
    order = find_schedule(schedule or find_planner(planner).schedule)
    wanted = shape or order.shape
    default_chunks = 1 if wanted is Shape.STRAIGHT else min(2, profile.num_units)
    return Problem(
        profile=profile,
        cluster=cluster,
        num_microbatches=num_microbatches,
        rows=rows,
        schedule=order.name,
        split_backward=split_backward,
        recompute=recompute,
        num_stages=num_stages,
        num_chunks=default_chunks if num_chunks is None else num_chunks,
        shape=wanted,
        profile_source=profile_source,
        cluster_source=cluster_source,
    )


def plan(
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    *,
    planner: str = DEFAULT_PLANNER,
    schedule: str | None = None,
    rows: int | None = None,
    split_backward: bool = False,
    recompute: bool = False,
    num_stages: int | None = None,
    num_chunks: int | None = None,
    shape: Shape | None = None,
) -> Plan:
    """A plan for a model on a cluster; see `make_problem` for what is decided if it is not given."""
    problem = make_problem(
        profile,
        cluster,
        num_microbatches,
        planner=planner,
        schedule=schedule,
        rows=rows,
        split_backward=split_backward,
        recompute=recompute,
        num_stages=num_stages,
        num_chunks=num_chunks,
        shape=shape,
    )
    return find_planner(planner).plan(problem)
