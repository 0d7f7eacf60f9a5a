"""All planners and schedules on one problem."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.plan import Plan
from penstock.planners.outcome import Outcome, outcome_of
from penstock.planners.problem import Problem

if TYPE_CHECKING:
    from penstock.plan import Shape

PLAN_FOR_A_SCHEDULE = frozenset({"bipartition", "auto"})
"""What these find depends on the schedule; the others look only at the shape that it is made for."""


class Entry(NamedTuple):
    """What came of a planner with a schedule."""

    planner: str
    schedule: str
    planning_s: float
    outcome: Outcome


class Ratio(NamedTuple):
    """How many times as long the best plan of one planner takes as those of the others, by their names."""

    planner: str
    schedule: str
    times_as_long_as: dict[str, float]


def entries(problems: Sequence[tuple[str, Problem]], plan_one: Callable[[str, Problem], Plan]) -> Iterator[Entry]:
    """One entry for each planner and the problem that it is asked, whose schedule it is ordered by.

    A plan that does not depend on the schedule is made once: then `planning_s` is what that took.
    """
    made: dict[tuple[str, Shape, int], tuple[Plan, float]] = {}
    for planner, problem in problems:
        key = planner, problem.shape, problem.num_chunks
        if key in made and planner not in PLAN_FOR_A_SCHEDULE:
            plan, planning_s = made[key]
            plan = msgspec.structs.replace(plan, schedule=problem.schedule)
        else:
            began = time.perf_counter()
            plan = plan_one(planner, problem)
            planning_s = time.perf_counter() - began
            made[key] = plan, planning_s
        yield Entry(planner, problem.schedule, planning_s, outcome_of(plan, problem.profile, problem.cluster))


def best_of_each(found: Sequence[Entry]) -> list[Entry]:
    """Every planner with its fastest schedule that fits, the fastest first; those that never fit are left out."""
    best: dict[str, Entry] = {}
    for entry in sorted(found, key=lambda entry: entry.outcome.iteration_s):
        if entry.outcome.fits:
            best.setdefault(entry.planner, entry)
    return list(best.values())


def ratios(found: Sequence[Entry]) -> list[Ratio]:
    """How every planner at its best compares with every other."""
    best = best_of_each(found)
    return [
        Ratio(
            row.planner,
            row.schedule,
            {
                column.planner: row.outcome.iteration_s / column.outcome.iteration_s
                for column in best
                if column.outcome.iteration_s > 0
            },
        )
        for row in best
    ]
