"""Comparison of planners and schedules on one problem."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import ProofError
from penstock.plan import Plan
from penstock.planners.outcome import Outcome, outcome_of
from penstock.planners.problem import Problem

if TYPE_CHECKING:
    from penstock.plan import Shape

SCHEDULE_DEPENDENT = frozenset({"bipartition", "auto"})
"""Planners whose plans depend on the schedule; those of the others depend only on its shape."""


class Entry(NamedTuple):
    """The result of a planner with a schedule."""

    planner: str
    schedule: str
    planning_s: float
    outcome: Outcome


class Ratio(NamedTuple):
    """The best plan of a planner, and its iteration time relative to the best plans of others, by their names."""

    planner: str
    schedule: str
    times_as_long_as: dict[str, float]


def compare_planners(
    problems: Sequence[tuple[str, Problem]],
    plan_one: Callable[[str, Problem], Plan],
    report_refusal: Callable[[str, Problem, ProofError], None],
) -> Iterator[Entry]:
    """Plan and evaluate every pair of a planner and a problem.

    A plan that does not depend on the schedule is made once for all schedules of the same shape; `planning_s` is the
    time of that.

    Args:
        problems: Planners by name, each with its problem. The problem's schedule orders the plan.
        plan_one: Makes the plan of a planner.
        report_refusal: Called for each plan that training refuses.

    Yields:
        One entry for each pair whose plan training accepts.
    """
    plans_by_shape: dict[tuple[str, Shape, int], tuple[Plan, float]] = {}
    for planner, problem in problems:
        key = planner, problem.shape, problem.num_chunks
        if key in plans_by_shape and planner not in SCHEDULE_DEPENDENT:
            plan, planning_s = plans_by_shape[key]
            plan = msgspec.structs.replace(plan, schedule=problem.schedule)
        else:
            began = time.perf_counter()
            plan = plan_one(planner, problem)
            planning_s = time.perf_counter() - began
            plans_by_shape[key] = plan, planning_s
        try:
            outcome = outcome_of(plan, problem.profile, problem.cluster, with_interval=True)
        except ProofError as error:
            report_refusal(planner, problem, error)
            continue
        yield Entry(planner, problem.schedule, planning_s, outcome)


def best_of_each(comparisons: Sequence[Entry]) -> list[Entry]:
    """The fastest entry of every planner that fits into memory, the fastest first."""
    best: dict[str, Entry] = {}
    for entry in sorted(comparisons, key=lambda entry: entry.outcome.iteration_s):
        if entry.outcome.fits:
            best.setdefault(entry.planner, entry)
    return list(best.values())


def iteration_ratios(comparisons: Sequence[Entry]) -> list[Ratio]:
    """Compare the best plan of every planner with that of every other."""
    best = best_of_each(comparisons)
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
