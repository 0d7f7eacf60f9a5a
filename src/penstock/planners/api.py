"""One call for all planners."""

from dataclasses import replace
from typing import TypedDict, Unpack

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Plan, Shape
from penstock.planners.auto import auto
from penstock.planners.problem import Problem
from penstock.planners.registry import find_planner
from penstock.planners.search_space import SearchSpace
from penstock.profile import Profile
from penstock.schedules import MAX_JOBS, find_schedule

DEFAULT_PLANNER = "auto"


class Options(TypedDict, total=False):
    """What can be asked of a plan.

    The planner decides on the schedule, and the schedule on shape and stages a device, unless they are given.
    For the planner auto: a schedule is one that it must keep to, `freedoms` are what else it may use, `work` is the
    number of plans to look at, and the same `seed` and work give the same plan.
    """

    planner: str
    schedule: str | None
    micro_batch_size: int | None
    split_backward: bool
    recompute: bool
    pipeline_depth: int | None
    num_chunks: int | None
    shape: Shape | None
    profile_source: str
    cluster_source: str
    search_space: SearchSpace
    work: int
    seed: int


FOR_AUTO = ("search_space", "work", "seed")


def make_problem(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Problem:
    """The problem that a planner is asked."""
    method = find_planner(options.get("planner", DEFAULT_PLANNER))
    order = find_schedule(options.get("schedule") or method.schedule)
    # Auto looks at all shapes by itself.
    shape = options.get("shape") or (order.shape if method.name != "auto" else Shape.STRAIGHT)
    chunks = options.get("num_chunks")
    problem = Problem(
        profile=profile,
        cluster=cluster,
        num_microbatches=num_microbatches,
        micro_batch_size=options.get("micro_batch_size"),
        schedule=order.name,
        split_backward=options.get("split_backward", False),
        recompute=options.get("recompute", False),
        pipeline_depth=options.get("pipeline_depth"),
        num_chunks=(1 if shape is Shape.STRAIGHT else min(2, profile.num_units)) if chunks is None else chunks,
        shape=shape,
        profile_source=options.get("profile_source", ""),
        cluster_source=options.get("cluster_source", ""),
    )
    if method.name == "auto" and num_microbatches * len(problem.lanes) > MAX_JOBS:
        raise InputError(
            f"{num_microbatches:,} micro-batches in {len(problem.lanes):,} stages are more than the {MAX_JOBS:,} "
            "forwards that fit into memory",
            hint="Use fewer micro-batches, with more rows each.",
        )
    return problem


def plan(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Plan:
    """A plan for a model on a cluster; `Options` says what can be asked for.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.profile.load import load_profile
    >>> profile, cluster = load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s")
    >>> made = plan(profile, cluster, 8, planner="balanced", schedule="zb_h1")
    >>> made.planner, made.schedule, made.num_stages
    ('balanced', 'zb_h1', 2)
    """
    name = options.get("planner", DEFAULT_PLANNER)
    problem = make_problem(profile, cluster, num_microbatches, **options)
    if name != "auto":
        given = [option for option in FOR_AUTO if option in options]
        if given:
            raise InputError(f"{', '.join(given)}: only for the planner auto, not for {name}")
        return find_planner(name).plan(problem)
    search_space = options.get("search_space", SearchSpace())
    search_space = replace(search_space, schedule=fixed_schedule(options.get("schedule")) or search_space.schedule)
    seed = options.get("seed", 0)
    if "work" not in options:
        return auto(problem, search_space=search_space, seed=seed)
    return auto(problem, search_space=search_space, work=options["work"], seed=seed)


def fixed_schedule(name: str | None) -> str | None:
    """The schedule that auto must keep to, of the one that was asked for: `auto` is any order."""
    return None if name is None or find_schedule(name).name == "auto" else name
