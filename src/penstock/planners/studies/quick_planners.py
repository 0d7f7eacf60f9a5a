"""Limits within which a planner is quick enough to run beside the requested plan, in an interactive command.

Measured on one core: within these limits planning and evaluating takes at most half a second, mostly far less.
"""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.planners.problem import Problem

MAX_JOBS = 20_000
"""Limit on the F, I and W actions of a program in which every device takes part in every micro-batch."""
MAX_CUTS = 1_000
"""Limit on layers times devices for planners that search."""
AUTO_CUTS = 3_000
"""Limit on layers times devices for auto."""
MAX_DEVICES = 32
"""Limit on devices for planners that search."""
PLAIN = ("uniform", "balanced", "data_parallel")
"""Planners that do not search; they are quick on any problem."""
TIMES_AS_LONG: Mapping[str, int] = MappingProxyType(
    {"zb_h1": 4, "zb_v": 4, "v_half": 4, "v_min": 4, "auto": 8, "auto_fused": 8, "bipartition": 4}
)
"""How much longer some schedules take per action, and the planner that simulates several plans."""


def is_quick(planner: str, problem: Problem) -> bool:
    """Whether planning and evaluating takes well under a second."""
    devices = problem.pipeline_depth or problem.cluster.num_devices
    jobs = 3 * problem.num_microbatches * problem.num_chunks * devices
    if jobs * TIMES_AS_LONG.get(problem.schedule, 1) * TIMES_AS_LONG.get(planner, 1) > MAX_JOBS:
        return False
    if planner in PLAIN:
        return True
    return planner != "auto" and devices <= MAX_DEVICES and problem.profile.num_units * devices <= MAX_CUTS


def is_quick_for_auto(problem: Problem) -> bool:
    """Whether auto without its search takes a few seconds at most."""
    devices = problem.pipeline_depth or problem.cluster.num_devices
    jobs = 3 * problem.num_microbatches * devices
    return jobs <= MAX_JOBS and devices <= MAX_DEVICES and problem.profile.num_units * devices <= AUTO_CUTS
