"""Planners: from a problem (profile, cluster, micro-batches) to a plan."""

from penstock.planners.api import DEFAULT_PLANNER, fixed_schedule, make_problem, plan
from penstock.planners.outcome import Outcome, alone_s, outcome_of
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS, find_planner
from penstock.planners.search_space import SearchSpace

__all__ = [
    "DEFAULT_PLANNER",
    "PLANNERS",
    "Outcome",
    "Problem",
    "SearchSpace",
    "alone_s",
    "find_planner",
    "fixed_schedule",
    "make_problem",
    "outcome_of",
    "plan",
]
