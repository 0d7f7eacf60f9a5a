"""The planner `auto`: starts from all other planners, then searches."""

from penstock.planners.auto.search import WORK, Progress, auto, search_plans

__all__ = ["WORK", "Progress", "auto", "search_plans"]
