"""Planning methods: the baselines, and methods from the literature in sub-packages."""

from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.data_parallel import data_parallel
from penstock.planners.methods.grids import regular_grids
from penstock.planners.methods.uniform import uniform

__all__ = ["balanced", "data_parallel", "regular_grids", "uniform"]
