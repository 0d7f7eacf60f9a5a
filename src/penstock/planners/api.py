"""The entry points of planning: `plan`, and `solve` for the plan with its costs and program."""

from dataclasses import replace
from typing import TypedDict, Unpack

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import MessageModel, Plan, Shape
from penstock.planners.auto import WORK, search_plans
from penstock.planners.problem import Problem
from penstock.planners.registry import find_planner
from penstock.planners.search_space import SearchSpace
from penstock.planners.solution import Solution, order_plan
from penstock.planners.switches import plan_within
from penstock.profile import Cuts, Profile
from penstock.schedules import find_schedule

DEFAULT_PLANNER = "auto"
MAX_JOBS_OF_AUTO = 4_000_000
"""Most micro-batches times devices, of which auto prices and orders many plans. It bounds the memory of a search."""


class Options(TypedDict, total=False):
    """Options of `plan`. By default the planner determines the schedule, and the schedule determines the shape.

    Attributes:
        planner: Name of the planner.
        schedule: Name of the schedule. The planner auto uses only this schedule.
        micro_batch_size: Rows of a micro-batch; the profile's own size by default.
        split_backward: Whether input and weight gradients are separate actions.
        recompute: Whether every stage recomputes its forward before the backward.
        pipeline_depth: Number of devices to use, the first ones of the cluster.
        num_chunks: Stages per device.
        shape: Assignment of stages to devices.
        profile_source: Where the profile comes from, for the plan file.
        cluster_source: Where the cluster comes from, for the plan file.
        cuts: Where stages may begin: at any layer ("layers"), not inside a numbered block ("blocks"), or also not among
            the layers before or behind the blocks ("whole"), or only between two blocks ("between").
        messages: How the engine that the plan is for moves messages; None: as Penstock does.
        search_space: Features that the plan may use. A planner that cannot keep to them is refused.
        work: Number of plans that the planner auto evaluates.
        seed: Seed of the planner auto. The same seed and work give the same plan.
        risk: Between 0 and 1: the planner auto judges plans by this quantile of their predicted time.
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
    cuts: Cuts
    messages: MessageModel | None
    search_space: SearchSpace
    work: int
    seed: int
    risk: float | None


FOR_AUTO = ("work", "seed", "risk")


def make_problem(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Problem:
    """Make the problem for a planner; see `Options`.

    Raises:
        InputError: If an option is invalid, or auto would need too much memory.
    """
    method = find_planner(options.get("planner", DEFAULT_PLANNER))
    search_space = options.get("search_space", SearchSpace())
    order = find_schedule(options.get("schedule") or search_space.schedule or method.schedule)
    # Auto tries all shapes itself.
    is_straight = method.name == "auto" or not search_space.virtual_stages
    shape = options.get("shape") or (Shape.STRAIGHT if is_straight else order.shape)
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
        cuts=options.get("cuts", "layers"),
        messages=options.get("messages"),
    )
    if method.name == "auto" and num_microbatches * cluster.num_devices > MAX_JOBS_OF_AUTO:
        raise InputError(
            f"number of micro-batches ({num_microbatches:,}) times number of devices ({cluster.num_devices:,}) must be "
            f"at most {MAX_JOBS_OF_AUTO:,} for the planner auto",
            hint="Use fewer and larger micro-batches.",
        )
    return problem


def plan(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Plan:
    """Plan a model on a cluster.

    Args:
        profile: The model's profile.
        cluster: The devices and links.
        num_microbatches: Micro-batches per iteration.
        **options: See `Options`; `planner` is "auto" by default.

    Returns:
        The plan, with the order of its compute actions.

    Raises:
        InputError: If an option is invalid or does not apply to the planner.

    Example:
        >>> from penstock.cluster.load import load_cluster
        >>> from penstock.profile.load import load_profile
        >>> profile, cluster = load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s")
        >>> result = plan(profile, cluster, 8, planner="balanced", schedule="zb_h1")
        >>> result.planner, result.schedule, result.num_stages
        ('balanced', 'zb_h1', 2)
    """
    return solve(profile, cluster, num_microbatches, **options).plan


def solve(profile: Profile, cluster: Cluster, num_microbatches: int, **options: Unpack[Options]) -> Solution:
    """Plan a model on a cluster; like `plan`, but also return the plan's costs and program."""
    name = options.get("planner", DEFAULT_PLANNER)
    problem = make_problem(profile, cluster, num_microbatches, **options)
    search_space = options.get("search_space", SearchSpace())
    if name != "auto":
        unused = [option for option in FOR_AUTO if option in options]
        if unused:
            raise InputError(
                f"{', '.join(unused)}: only the planner auto accepts these options, not {name}",
                hint="Remove them, or use the planner auto.",
            )
        return order_plan(plan_within(find_planner(name), problem, search_space), problem)
    search_space = replace(search_space, schedule=fixed_schedule(options.get("schedule")) or search_space.schedule)
    risk = options.get("risk")
    if risk is not None and not 0 < risk < 1:
        raise InputError(f"risk must be between 0 and 1, not {risk:g}")
    return search_plans(
        problem, search_space=search_space, work=options.get("work", WORK), seed=options.get("seed", 0), risk=risk
    )


def fixed_schedule(name: str | None) -> str | None:
    """The only schedule that auto may use, or None for any order of the actions (no schedule, or `auto`)."""
    return None if name is None or find_schedule(name).name == "auto" else name
