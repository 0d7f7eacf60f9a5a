"""The next best plan: the fastest plan of other planners for the same problem.

Only quick planners run (quick_planners.py: programs of at most 20,000 actions, 5,000 for bipartition; planners that
search only for at most 32 devices and 1,000 layers times devices), each once, with its default schedule. So this takes
less than a second: 0.2 s for VGG16 on 8 devices.
"""

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.plan import Plan, Shape
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS
from penstock.planners.search_space import SearchSpace
from penstock.planners.studies.quick_planners import is_quick
from penstock.simulate import evaluate

ANYTHING = SearchSpace()
ALTERNATIVE_PLANNERS = ("uniform", "balanced", "data_parallel", "pipedream", "spp", "bipartition", "dapple")


class Alternative(NamedTuple):
    """An alternative plan.

    Attributes:
        name: Its planner and schedule.
        seconds: Its iteration time.
        is_allowed: Whether it is within the search space of the original plan.
    """

    name: str
    seconds: float
    is_allowed: bool = True


def next_best(problem: Problem, than: Plan, search_space: SearchSpace = ANYTHING) -> Alternative | None:
    """Find the fastest plan of other planners that fits into memory.

    Args:
        problem: The problem to plan.
        than: The original plan. An alternative differs from it in its stages or its schedule.
        search_space: The search space of the original plan.

    Returns:
        The alternative; None if there is none, or if planning would take long.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.planners.methods.balanced import balanced
    >>> from penstock.profile.load import load_profile
    >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
    >>> alternative = next_best(problem, balanced(problem))
    >>> alternative.name.partition(" + ")[0] in ALTERNATIVE_PLANNERS, alternative.seconds > 0
    (True, True)
    """
    best: Alternative | None = None
    for name in ALTERNATIVE_PLANNERS:
        planner = PLANNERS[name]
        variant = replace(problem, schedule=planner.schedule, shape=Shape.STRAIGHT, num_chunks=1)
        if not is_quick(name, variant):
            continue
        with suppress(PenstockError):  # for example a device that is too slow to get any rows
            candidate = planner.plan(variant)
            if (candidate.stages, candidate.schedule) == (than.stages, than.schedule):
                continue
            result = evaluate(candidate, problem.profile, problem.cluster, within_memory=False)
            fits = not result.costs.over_bytes(result.proof.peak_bytes).any()
            if fits and (best is None or result.timeline.iteration_s < best.seconds):
                is_allowed = search_space.allow(candidate, problem.cluster, recompute=problem.recompute)
                best = Alternative(f"{name} + {planner.schedule}", result.timeline.iteration_s, is_allowed)
    return best
