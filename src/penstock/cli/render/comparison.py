"""Running and showing a comparison of planners and schedules."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from penstock.cli.console import Screen
from penstock.cli.options import AutoOptions
from penstock.cli.render.search_progress import search
from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.planners import Problem, SearchSpace, find_planner, fixed_schedule, make_problem
from penstock.planners.bounds import Bound
from penstock.planners.studies import Entry, entries, ratios
from penstock.profile import Profile
from penstock.units import show_bytes, show_percent, show_seconds


def planned_problems(
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    planners: Sequence[str],
    schedules: Sequence[str],
    *,
    free_auto: bool,
) -> list[tuple[str, Problem]]:
    """Every planner with every schedule; auto only with any order, if it is free."""
    return [
        (planner, make_problem(profile, cluster, num_microbatches, planner=planner, schedule=schedule))
        for planner in planners
        for schedule in (("auto",) if planner == "auto" and free_auto else schedules)
    ]


def plans_of(screen: Screen, problems: Sequence[tuple[str, Problem]], asked: AutoOptions) -> list[Entry]:
    """What comes of all of them: those that fit first, then the fastest."""

    def plan_one(planner: str, problem: Problem) -> Plan:
        if planner == "auto":
            search_space = SearchSpace(schedule=fixed_schedule(problem.schedule))
            return search(screen, problem, replace(asked, search_space=search_space), what=f"auto + {problem.schedule}")
        with screen.working(f"{planner} + {problem.schedule}"):
            return find_planner(planner).plan(problem)

    found = list(entries(problems, plan_one))
    return sorted(found, key=lambda entry: (not entry.outcome.fits, entry.outcome.iteration_s))


def comparison_data(found: Sequence[Entry], alone: float, bound: Bound) -> dict[str, Any]:
    """The figures for machines."""
    return {
        "one_device_s": alone,
        "bound_s": bound.seconds,
        "plans": [
            {
                "planner": entry.planner,
                "schedule": entry.schedule,
                **msgspec.to_builtins(entry.outcome),
                "speed_up": alone / entry.outcome.iteration_s if entry.outcome.iteration_s > 0 else None,
                "gap": entry.outcome.iteration_s / bound.seconds - 1 if bound.seconds > 0 else None,
                "planning_s": entry.planning_s,
            }
            for entry in found
        ],
        "ratios": [item._asdict() for item in ratios(found)],
    }


def show_comparison(screen: Screen, title: str, found: Sequence[Entry], alone: float, bound: Bound) -> None:
    """The table of all plans, and how the planners compare with each other."""
    screen.table(
        title,
        (
            "planner",
            "schedule",
            "iteration",
            "speed-up",
            "over bound",
            "bubble",
            "peak memory",
            "traffic",
            "planned in",
            "",
            "",
        ),
        [_cells(entry, alone, bound) for entry in found],
        left=2,
    )
    screen.show(
        f"speed-up: over one device without memory limit, {show_seconds(alone)}; "
        f"over bound: {show_seconds(bound.seconds)}, which no plan can beat ({bound.reason})"
    )
    table = ratios(found)
    names = [item.planner for item in table]
    if len(table) > 1 and all(set(item.times_as_long_as) == set(names) for item in table):
        screen.show("")
        screen.table(
            "how many times as long the row takes as the column, each planner with its best schedule that fits",
            ("planner", "schedule", *names),
            [
                (item.planner, item.schedule, *(f"{item.times_as_long_as[name]:.2f}" for name in names))
                for item in table
            ],
            left=2,
        )


def _cells(entry: Entry, alone: float, bound: Bound) -> tuple[str, ...]:
    out = entry.outcome
    return (
        entry.planner,
        entry.schedule,
        show_seconds(out.iteration_s),
        f"{alone / out.iteration_s:.2f} x" if out.iteration_s > 0 else "",
        show_percent(out.iteration_s / bound.seconds - 1) if bound.seconds > 0 else "",
        show_percent(out.bubble_fraction),
        show_bytes(out.peak_bytes),
        show_bytes(out.traffic_bytes),
        show_seconds(entry.planning_s),
        "" if out.fits else "does not fit",
        "" if out.whole_rows else "splits rows",
    )
