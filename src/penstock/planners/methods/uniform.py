"""Uniform: equal numbers of units, one device a stage. What people do by default.

Cost: O(segments).
"""

from penstock.plan import Plan
from penstock.planners.problem import Problem


def uniform(problem: Problem) -> Plan:
    """Segments with the same number of units, give or take one; the earlier ones take the odd ones."""
    return problem.pipeline("uniform", even_cuts(problem.profile.num_units, len(problem.lanes)))


def even_cuts(num_units: int, num_segments: int) -> list[int]:
    """Cuts that differ by as little as possible.

    >>> even_cuts(10, 4)
    [0, 3, 6, 8, 10]
    """
    size, odd = divmod(num_units, num_segments)
    return [place * size + min(place, odd) for place in range(num_segments + 1)]
