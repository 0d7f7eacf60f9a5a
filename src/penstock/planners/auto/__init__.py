"""The planner `auto`: starts from all other planners, then searches."""

from penstock.planners.auto.search import Progress, auto

__all__ = ["Progress", "auto"]
