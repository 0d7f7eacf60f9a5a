"""The next best plan: what other planners would have made of the same problem.

Only planners that answer quickly are asked (effort.py: programs of at most 20,000 jobs, 5,000 for bipartition; those
that search, only for at most 32 devices and 1,000 units times devices), each once, with the schedule that it plans for.
So it takes less than a second: 0.2 s for VGG16 on 8 devices.
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
TRIED = ("uniform", "balanced", "data_parallel", "pipedream", "spp", "bipartition", "dapple")


class Alternative(NamedTuple):
    """Another plan: the planner and schedule that give it, and the seconds of its iteration."""

    name: str
    seconds: float
    is_allowed: bool = True
    """Whether it keeps to what the plan was to keep to."""


def next_best(problem: Problem, than: Plan, search_space: SearchSpace = ANYTHING) -> Alternative | None:
    """The fastest other plan that fits into memory; None if there is none, or if finding one would take long.

    A plan is another one if its stages or its schedule differ.

    >>> from penstock.cluster.load import load_cluster
    >>> from penstock.planners.methods.balanced import balanced
    >>> from penstock.profile.load import load_profile
    >>> problem = Problem(load_profile("gpt2", kinds=["T4"]), load_cluster("2 x T4 @ 1 GB/s"), 8)
    >>> found = next_best(problem, balanced(problem))
    >>> found.name.partition(" + ")[0] in TRIED, found.seconds > 0
    (True, True)
    """
    best: Alternative | None = None
    for name in TRIED:
        planner = PLANNERS[name]
        asked = replace(problem, schedule=planner.schedule, shape=Shape.STRAIGHT, num_chunks=1)
        if not is_quick(name, asked):
            continue
        with suppress(PenstockError):  # such as a device too slow to take any rows
            made = planner.plan(asked)
            if (made.stages, made.schedule) == (than.stages, than.schedule):
                continue
            result = evaluate(made, problem.profile, problem.cluster, within_memory=False)
            fits = not result.costs.over_bytes(result.proof.peak_bytes).any()
            if fits and (best is None or result.timeline.iteration_s < best.seconds):
                is_allowed = search_space.allow(made, problem.cluster, recompute=problem.recompute)
                best = Alternative(f"{name} + {planner.schedule}", result.timeline.iteration_s, is_allowed)
    return best
