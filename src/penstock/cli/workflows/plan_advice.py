"""Evaluation of a new plan: advice if it does not fit into memory, and the next best plan."""

from collections.abc import Callable
from dataclasses import replace

from penstock.bundle import ProfileSource
from penstock.cli.console import Console
from penstock.errors import MemoryLimitError
from penstock.plan import Plan
from penstock.planners import Problem, SearchSpace, Solution
from penstock.planners.studies import Alternative
from penstock.profile import Profile
from penstock.simulate import Evaluation


def evaluate_or_advise(
    console: Console,
    problem: Problem,
    solution: Solution,
    source: ProfileSource,
    *,
    within_memory: bool = True,
    search_space: SearchSpace | None = None,
) -> Evaluation:
    """Prove and simulate the plan; if it does not fit into memory, the error lists changes that help."""
    from penstock.planners.studies import advise_on_memory
    from penstock.program.proof import check_memory
    from penstock.simulate import evaluate_costs

    with console.working("proving and simulating (the very first run compiles the simulator)"):
        result = evaluate_costs(solution.costs, program=solution.program, within_memory=False)
    if not within_memory:
        return result
    try:
        check_memory(result.proof)
    except MemoryLimitError as error:
        with console.working("the plan does not fit into memory: searching for changes that help"):
            profile_at = _profiles_by_rows(source, problem.profile)
            lines = advise_on_memory(problem, result.proof, profile_at=profile_at, search_space=search_space)
        hint = "\n  ".join(lines) or error.hint
        raise MemoryLimitError(error.what, where=error.where, hint=hint) from None
    return result


def other_plan(console: Console, problem: Problem, plan: Plan, search_space: SearchSpace) -> Alternative | None:
    """The next best plan, unless the output is suppressed."""
    from penstock.planners.studies import next_best

    if console.quiet and not console.as_json:
        return None
    with console.working("running other planners"):
        return next_best(problem, plan, search_space)


def _profiles_by_rows(source: ProfileSource, profile: Profile) -> Callable[[int], Profile] | None:
    """The profile for other micro-batch sizes; None for PipeDream files, which have one measured size."""
    from penstock.profile import is_computed

    def at(rows: int) -> Profile:
        return replace(source, micro_batch_size=rows).load()

    # A file with its own micro-batch sizes has the same units for every requested size.
    return at if is_computed(source.source) or at(profile.micro_batch_size + 1).units == profile.units else None
