"""What an engine runs today, compared with the best plans for the engine and without its limits."""

from dataclasses import dataclass

from penstock.cli.console import Console
from penstock.cli.options import AutoOptions, Method
from penstock.cli.workflows.search import make_plan
from penstock.errors import InputError, ProofError
from penstock.export import Engine, find_engine, import_plan, obstacles_to
from penstock.planners import Outcome, Problem, outcome_of


@dataclass(frozen=True)
class Running:
    """The figures of what runs today, and of what would be better.

    Attributes:
        engine: The engine.
        running: What runs today.
        for_engine: The best plan found for the engine.
        unrestricted: The best plan found without the engine's limits.
    """

    engine: Engine
    running: Outcome
    for_engine: Outcome
    unrestricted: Outcome


def compare_running(
    console: Console,
    description: str,
    problem: Problem,
    options: AutoOptions,
) -> Running:
    """Import what an engine runs, and plan the same problem for the engine and without its limits.

    Args:
        console: For progress.
        description: The engine and its stages, as `import_plan` takes them.
        problem: The model, the cluster, and the number of micro-batches.
        options: The search.

    Raises:
        InputError: The description is invalid, or the engine cannot run it.
    """
    from penstock.simulate import evaluate

    profile, cluster = problem.profile, problem.cluster
    plan = import_plan(description, profile, cluster, problem.num_microbatches)
    engine = find_engine(plan.planner)
    try:
        with console.working("proving and simulating (the very first run compiles the simulator)"):
            evaluation = evaluate(plan, profile, cluster, within_memory=False)
    except ProofError as error:
        raise InputError(f"{engine.title} cannot run this: {error.what}", where=description[:100]) from None
    obstacles = obstacles_to(evaluation, profile, engine.name)
    if obstacles:
        what = "; ".join(f"{item.feature}: {item.what}" for item in obstacles)
        hint = "Describe what the engine runs; a model that is trained untied has --untied."
        raise InputError(f"{engine.title} cannot run this: {what}", where=description[:100], hint=hint)
    running = outcome_of(plan, profile, cluster)
    method = Method(searching=options)
    found = _best(console, method.for_engine(engine.name), problem, f"planning for {engine.title}")
    # What runs is a plan for the engine too, and one for the engine is one without its limits.
    for_engine = min(found, running, key=lambda outcome: outcome.rank)
    free = _best(console, method, problem, "planning without the limits of the engine")
    return Running(engine, running, for_engine, min(free, for_engine, key=lambda outcome: outcome.rank))


def _best(console: Console, method: Method, problem: Problem, what: str) -> Outcome:
    planned = method.problem(problem.profile, problem.cluster, problem.num_microbatches)
    return outcome_of(make_plan(console, method, planned, what=what).plan, problem.profile, problem.cluster)
