"""Planners: from a problem (profile, cluster, micro-batches) to a plan."""

from penstock.planners.api import DEFAULT_PLANNER, fixed_schedule, make_problem, plan
from penstock.planners.outcome import Outcome, outcome_of, single_device_s
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS, find_planner
from penstock.planners.search_space import SearchSpace
from penstock.planners.solution import Declined, Solution, order_plan
from penstock.planners.switches import plan_within

__all__ = [
    "DEFAULT_PLANNER",
    "PLANNERS",
    "Declined",
    "Outcome",
    "Problem",
    "SearchSpace",
    "Solution",
    "find_planner",
    "fixed_schedule",
    "make_problem",
    "order_plan",
    "outcome_of",
    "plan",
    "plan_within",
    "single_device_s",
]
