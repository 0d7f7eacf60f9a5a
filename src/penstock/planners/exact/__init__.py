"""Exact solutions of small problems."""

from penstock.planners.exact.bounds import map_bounds
from penstock.planners.exact.maps import all_maps, num_maps, plan_of_map
from penstock.planners.exact.solve import exact

__all__ = ["all_maps", "exact", "map_bounds", "num_maps", "plan_of_map"]
