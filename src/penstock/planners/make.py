"""One call for all planners."""

from penstock.cluster.types import Cluster
from penstock.plan.shapes import Shape
from penstock.plan.types import Plan
from penstock.planners import find_planner
from penstock.planners.problem import Problem
from penstock.profile.types import Profile
from penstock.schedules import find_schedule

DEFAULT_PLANNER = "balanced"


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
    profile_source: str = "",
    cluster_source: str = "",
) -> Plan:
    """A plan for a model on a cluster.

    The planner decides on the schedule, and the schedule on shape and segments a device, unless they are given.
    """
    method = find_planner(planner)
    order = find_schedule(schedule or method.schedule)
    wanted = shape or order.shape
    default_chunks = 1 if wanted is Shape.STRAIGHT else min(2, profile.num_units)
    problem = Problem(
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
    return method.plan(problem)
