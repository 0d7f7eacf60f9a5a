"""Lower bounds on the iteration time of every plan."""

from penstock.planners.bounds.bound import Bound, BoundPart, lower_bound
from penstock.planners.bounds.unit_seconds import UnitTimes, unit_times

__all__ = ["Bound", "BoundPart", "UnitTimes", "lower_bound", "unit_times"]
