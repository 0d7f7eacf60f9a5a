"""Proven lower bounds on the iteration time of every plan."""

from penstock.planners.bounds.bound import Bound, binding_part, gap_to_bound, lower_bound, relative_gap
from penstock.planners.bounds.unit_seconds import UnitTimes, unit_times

__all__ = ["Bound", "UnitTimes", "binding_part", "gap_to_bound", "lower_bound", "relative_gap", "unit_times"]
