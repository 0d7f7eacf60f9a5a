"""What goes with a new plan: advice where it does not fit into memory, and the next best plan beside it."""

from collections.abc import Callable
from dataclasses import replace

from penstock.bundle import ProfileSource
from penstock.cli.console import Screen
from penstock.errors import MemoryLimitError
from penstock.plan import Plan
from penstock.planners import Problem, SearchSpace
from penstock.planners.studies import Alternative
from penstock.profile import Profile
from penstock.simulate import Evaluation


def evaluate_or_advise(
    screen: Screen,
    problem: Problem,
    plan: Plan,
    source: ProfileSource,
    *,
    within_memory: bool = True,
    search_space: SearchSpace | None = None,
) -> Evaluation:
    """The plan proved and simulated; where it does not fit, the error says what was tried and what would help."""
    from penstock.planners.studies import what_would_help
    from penstock.program.proof import check_memory
    from penstock.simulate import evaluate

    with screen.working("proving and simulating (the very first run compiles the simulator)"):
        result = evaluate(plan, problem.profile, problem.cluster, within_memory=False)
    if not within_memory:
        return result
    try:
        check_memory(result.proof)
    except MemoryLimitError as error:
        with screen.working("it does not fit into memory: looking for what would help"):
            profile_at = _profiles_by_rows(source, problem.profile)
            lines = what_would_help(problem, result.proof, profile_at=profile_at, search_space=search_space)
        hint = "\n  ".join(lines) or error.hint
        raise MemoryLimitError(error.what, where=error.where, hint=hint) from None
    return result


def other_plan(screen: Screen, problem: Problem, plan: Plan, search_space: SearchSpace) -> Alternative | None:
    """The next best plan, if anybody is going to read about it."""
    from penstock.planners.studies import next_best

    if screen.quiet and not screen.as_json:
        return None
    with screen.working("asking other planners"):
        return next_best(problem, plan, search_space)


def _profiles_by_rows(source: ProfileSource, profile: Profile) -> Callable[[int], Profile] | None:
    """The profile for other micro-batch sizes; None for PipeDream files, which have one measured size."""
    from penstock.profile import is_computed

    def at(rows: int) -> Profile:
        return replace(source, micro_batch_size=rows).load()

    # Files that hold their own numbers of rows have the same units whatever is asked for.
    return at if is_computed(source.source) or at(profile.micro_batch_size + 1).units == profile.units else None
