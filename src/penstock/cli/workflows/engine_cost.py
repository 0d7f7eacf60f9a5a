"""Planning for a training engine: what it refuses at once, and what staying with it costs."""

from penstock.cli.console import Console
from penstock.cli.options import Method
from penstock.cli.render import EngineCost
from penstock.cli.workflows.search import make_plan
from penstock.errors import InputError
from penstock.export import find_engine
from penstock.planners import Problem
from penstock.profile import Profile
from penstock.simulate import Evaluation


def require_no_end_ties(profile: Profile, engine: str) -> None:
    """Refuse a model whose first and last layers share parameters before it is planned, if the engine cannot run it.

    Raises:
        InputError: The engine requires stages without common parameters.
    """
    found = find_engine(engine)
    ends = {0, profile.num_units - 1}
    for tie in profile.ties:
        if found.limits.ties == "none" and ends <= set(tie.units):
            what = f"{found.title} cannot run stages that share parameters, as {profile.name} does ({tie.name!r})"
            raise InputError(what, hint="Plan the model without, and train it untied: --untied.")


def cost_of_engine(console: Console, engine: str, free: Method, problem: Problem, result: Evaluation) -> EngineCost:
    """Compare the plan for an engine with the best plan without the engine's limits.

    Args:
        console: For progress.
        engine: The name of the engine.
        free: The method without the engine.
        problem: The problem that was planned for the engine.
        result: The evaluated plan.
    """
    from penstock.simulate import evaluate_costs

    found = find_engine(engine)
    unrestricted = free.problem(problem.profile, problem.cluster, problem.num_microbatches, problem.micro_batch_size)
    solution = make_plan(console, free, unrestricted, what="planning without the limits of the engine")
    other = evaluate_costs(solution.costs, program=solution.program, within_memory=False)
    fits = not other.costs.over_bytes(other.proof.peak_bytes).any()
    return EngineCost(
        found.name,
        found.title,
        result.timeline.iteration_s,
        other.timeline.iteration_s if fits else None,
    )
