"""Running all planners and schedules of a comparison, with progress."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.cli.console import Console
from penstock.cli.options import AutoOptions
from penstock.cli.workflows.search import search
from penstock.cluster import Cluster
from penstock.errors import ProofError
from penstock.plan import Plan
from penstock.planners import Problem, SearchSpace, find_planner, fixed_schedule, make_problem
from penstock.planners.studies import Entry, compare_planners
from penstock.profile import Profile


def planned_problems(
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    planners: Sequence[str],
    schedules: Sequence[str],
    *,
    free_auto: bool,
) -> list[tuple[str, Problem]]:
    """Combine every planner with every schedule; with `free_auto`, auto only with a free order."""
    return [
        (planner, make_problem(profile, cluster, num_microbatches, planner=planner, schedule=schedule))
        for planner in planners
        for schedule in (("auto",) if planner == "auto" and free_auto else schedules)
    ]


def plans_of(console: Console, problems: Sequence[tuple[str, Problem]], options: AutoOptions) -> list[Entry]:
    """Plan all problems. Returns plans that fit first, then the fastest."""

    def plan_one(planner: str, problem: Problem) -> Plan:
        if planner == "auto":
            search_space = SearchSpace(schedule=fixed_schedule(problem.schedule))
            return search(
                console, problem, replace(options, search_space=search_space), what=f"auto + {problem.schedule}"
            ).plan
        with console.working(f"{planner} + {problem.schedule}"):
            return find_planner(planner).plan(problem)

    def report_refusal(planner: str, problem: Problem, error: ProofError) -> None:
        console.warn(f"{planner} + {problem.schedule}: {error.what}")

    results = compare_planners(problems, plan_one, report_refusal)
    return sorted(results, key=lambda entry: (not entry.outcome.fits, entry.outcome.iteration_s))
