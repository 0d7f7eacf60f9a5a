"""The planner `auto`: starts from all other planners, then searches."""

from penstock.planners.auto.search import WORK, auto, search_plans
from penstock.planners.auto.search_state import Progress

__all__ = ["WORK", "Progress", "auto", "search_plans"]
