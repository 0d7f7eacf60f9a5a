"""penstock plan: cut a model, place it, order its actions; prove and simulate the plan."""

import time
from typing import TYPE_CHECKING

import click

from penstock.bundle import ProfileSource
from penstock.cli.console import Console, console_options
from penstock.cli.options import (
    Amounts,
    LossOptions,
    Method,
    RecipeOptions,
    amount_options,
    check_outputs,
    loss_options,
    method_options,
    profile_options,
)
from penstock.cli.render import (
    bound_of,
    contents_of,
    engine_data,
    evaluation_data,
    show_engine_cost,
    show_evaluation,
    warn_if_old,
)
from penstock.cli.workflows import (
    PricedLosses,
    cost_of_engine,
    evaluate_or_advise,
    losses_data,
    other_plan,
    plan_problem,
    price_all,
    require_no_end_ties,
    show_losses,
    survivable_plan,
)
from penstock.export import ENGINES, require_exportable

if TYPE_CHECKING:
    from penstock.plan import Plan
    from penstock.profile import Profile


@click.command("plan")
@click.option("--profile", "source", required=True, help="A profile file, or a built-in model such as gpt2-xl.")
@click.option(
    "--cluster", "cluster_source", required=True, help='A TOML file, or a short form such as "8 x A100-40 @ 100 GB/s".'
)
@amount_options
@method_options
@loss_options
@click.option("--engine", help=f"Plan for another training engine: {', '.join(ENGINES)}.")
@click.option("--ignore-memory", is_flag=True, help="Accept a plan that does not fit into memory.")
@profile_options
@click.option("-o", "--output", help="Write the plan to this file.")
@click.option("--program", help="Write the program, every action of every device, to this file.")
@click.option("--timeline", help="Write the simulated timeline to this file.")
@click.option("--trace", help="Write a Chrome trace for Perfetto to this file.")
@console_options
def command(
    console: Console,
    source: str,
    cluster_source: str,
    amounts: Amounts,
    method: Method,
    losses: LossOptions,
    engine: str | None,
    ignore_memory: bool,
    kinds: tuple[str, ...],
    micro_batch_size: int | None,
    sequence: int | None,
    recipe: RecipeOptions,
    untied: bool,
    output: str | None,
    program: str | None,
    timeline: str | None,
    trace: str | None,
) -> None:
    """Cut a model, place it on a cluster, and order its actions; prove that the plan can run, and simulate it.

    To choose the number of micro-batches: -m auto --global-batch-size 512. To choose the number of devices:
    --devices 1..16, or --under 2s for the fewest that meet a target.
    """
    from penstock.cluster import load_cluster
    from penstock.io import encode_json, write_all
    from penstock.planners.studies import retarget_to_cluster
    from penstock.simulate import evaluate

    outputs = (output, program, timeline, trace)
    check_outputs((source, cluster_source), outputs)
    cluster = load_cluster(cluster_source)
    warn_if_old(console, cluster)
    profile_source = ProfileSource(source, kinds, micro_batch_size, sequence, recipe.recipe, untied)
    profile_source = profile_source.for_cluster(cluster)
    free = method
    if engine is not None:
        method = method.for_engine(engine)
        require_no_end_ties(profile_source.load(), engine)
    start_s = time.perf_counter()
    planning = plan_problem(console, profile_source, cluster, cluster_source, amounts, method)
    planning_s = time.perf_counter() - start_s
    profile = planning.problem.profile
    priced: PricedLosses | None = None
    if losses.survive:
        planning, priced = survivable_plan(console, planning, method, losses)
    result = evaluate_or_advise(
        console,
        planning.problem,
        planning.solution,
        profile_source,
        within_memory=not ignore_memory,
        search_space=method.search_space,
    )
    if engine is not None:
        require_exportable(result, profile, engine)
    # Files name the whole cluster and are for it; the text is for the part that the plan uses.
    written_plan, written_result = planning.solution.plan, result
    if planning.problem.cluster is not cluster:
        written_plan = retarget_to_cluster(written_plan, cluster, cluster_source)
        if program or timeline or trace:
            written_result = evaluate(written_plan, profile, cluster, within_memory=not ignore_memory)
    contents = contents_of(written_result, program=program, timeline=timeline, trace=trace)
    write_all(({output: encode_json(written_plan)} if output else {}) | contents)
    bound = bound_of(result, profile) if console.shows_text or console.as_json else None
    other = other_plan(console, planning.problem, planning.solution.plan, method.search_space)
    cost = (
        cost_of_engine(console, engine, free, planning.problem, result)
        if engine is not None and bound is not None
        else None
    )
    if losses.is_priced and priced is None:
        priced = price_all(console, result, profile, losses)
    if console.as_json and bound is not None:
        figures = evaluation_data(
            result, profile, bound, other, declined=planning.solution.declined, seed=method.searching.seed or 0
        )
        figures |= planning.tried | engine_data(cost) | losses_data(priced)
        console.data({"planning_s": planning_s, **figures, "plan": written_plan})
    show_evaluation(
        console,
        result,
        profile,
        bound,
        other,
        declined=planning.solution.declined,
        seed=method.searching.seed or 0,
    )
    show_losses(console, priced, losses)
    show_engine_cost(console, cost)
    console.assumptions(*profile.assumptions, *cluster.assumptions)
    for path in outputs:
        if path:
            console.wrote(path)
    console.next(_next(written_plan, profile, output, trace))


def _next(plan: "Plan", profile: "Profile", output: str | None, trace: str | None) -> str:
    if trace:
        return f"open {trace} in https://ui.perfetto.dev"
    if output:
        return f"penstock report {output}"
    if plan.micro_batch_size != profile.micro_batch_size:
        return "repeat with -o plan.json to save this plan"
    named = f'--profile {plan.profile.source} --cluster "{plan.cluster.source}"'
    return f"penstock compare {named} -m {plan.num_microbatches}"
