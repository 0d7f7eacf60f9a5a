"""Plans of any planner within a search space.

Auto searches the space itself. The other planners take the switches that change what their method looks for
(`Planner.switches`); shares of rows are adjusted afterwards. If the plan is still outside the space, a planner
that can do without replicas plans without them: a micro-batch may have too few rows for its groups. Otherwise it is
refused by name.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from penstock.errors import InputError
from penstock.plan import Plan
from penstock.planners.problem import Problem
from penstock.planners.registry import Planner
from penstock.planners.row_shares import with_equal_shares, with_whole_rows
from penstock.planners.search_space import SearchSpace

FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "replication": "stages on several devices",
        "two_cuts": "two sets of cuts",
        "virtual_stages": "several stages per device",
        "recomputation": "recomputation",
        "sharded_optimizer": "sharded optimizers",
        "split_backward": "split backwards",
        "device_order": "devices in another order than that of the cluster",
        "part_rows": "fractional rows",
        "unequal_replicas": "different numbers of replicas",
        "unequal_shares": "unequal shares of the rows",
        "part_recomputation": "recomputation of some stages only",
        "part_rounds": "incomplete rounds of a loop",
        "maps": "another map of stages to devices",
    }
)
"""What each field of `SearchSpace` is called in messages."""


def plan_within(planner: Planner, problem: Problem, search_space: SearchSpace) -> Plan:
    """The plan of a planner other than auto, within a search space.

    Args:
        planner: The planner.
        problem: The problem.
        search_space: The features that the plan may use.

    Raises:
        InputError: The planner cannot keep to the search space, or the problem asks for a feature that it excludes.

    Example:
        >>> from penstock.cluster.load import load_cluster
        >>> from penstock.planners.registry import PLANNERS
        >>> from penstock.profile.load import load_profile
        >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("4 x T4 @ 1 GB/s"), 8)
        >>> plan = plan_within(PLANNERS["pipedream"], problem, SearchSpace(replication=False))
        >>> {stage.num_replicas for stage in plan.stages}
        {1}
    """
    if problem.recompute and not search_space.recomputation:
        raise _refusal("the problem", "recomputation")
    if problem.split_backward and not search_space.split_backward:
        raise _refusal("the problem", "split_backward")
    # The search space refuses other schedules that split the backward.
    space = replace(search_space, schedule=problem.schedule)
    problem = replace(problem, schedule=space.plan_schedule)
    plan = _planned(planner, problem, space)
    feature = space.excluded_feature(plan, problem.cluster, recompute=problem.recompute)
    if feature is not None and "replication" in planner.switches:
        plan = _planned(planner, problem, replace(space, replication=False))
        feature = space.excluded_feature(plan, problem.cluster, recompute=problem.recompute)
    if feature is not None:
        raise _refusal(f"planner {planner.name}", feature)
    return plan


def _planned(planner: Planner, problem: Problem, space: SearchSpace) -> Plan:
    plan = planner.plan(problem, **{name: getattr(space, name) for name in planner.switches})
    if not space.unequal_shares:
        plan = with_equal_shares(plan)
    return plan if space.part_rows else with_whole_rows(plan)


def _refusal(what: str, feature: str) -> InputError:
    return InputError(
        f"{what} uses {FEATURES[feature]}, which the search space excludes",
        hint="Allow it, or use another planner, such as auto.",
    )
