"""Uniform: equal numbers of units, one device a stage. What people do by default.

Cost: O(stages).
"""

from penstock.plan import Plan
from penstock.planners.problem import Problem


def uniform(problem: Problem) -> Plan:
    """Stages with the same number of units, give or take one; the earlier ones take the odd ones."""
    return problem.pipeline("uniform", even_cuts(problem.profile.num_units, len(problem.lanes)))


def even_cuts(num_units: int, num_stages: int) -> list[int]:
    """Cuts that differ by as little as possible.

    >>> even_cuts(10, 4)
    [0, 3, 6, 8, 10]
    """
    size, odd = divmod(num_units, num_stages)
    return [place * size + min(place, odd) for place in range(num_stages + 1)]
