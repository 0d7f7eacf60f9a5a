"""Uniform: equal numbers of layers, one device per stage. The common default.

Cost: O(stages).
"""

from penstock.plan import Plan
from penstock.planners.problem import Problem


def uniform(problem: Problem) -> Plan:
    """Give every stage the same number of layers; the first stages take the remainder, one layer each."""
    return problem.pipeline("uniform", even_cuts(problem.profile.num_units, len(problem.stage_devices)))


def even_cuts(num_units: int, num_stages: int) -> list[int]:
    """Cuts whose distances differ by at most one.

    >>> even_cuts(10, 4)
    [0, 3, 6, 8, 10]
    """
    size, odd = divmod(num_units, num_stages)
    return [stage * size + min(stage, odd) for stage in range(num_stages + 1)]
