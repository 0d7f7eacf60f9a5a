"""penstock plan: cut a model, place it, order the work; prove and simulate it."""

import time
from typing import TYPE_CHECKING

import click

from penstock.bundle import Precision, ProfileSource
from penstock.cli.console import Screen, screen_options
from penstock.cli.options import (
    Amounts,
    Method,
    amount_options,
    check_outputs,
    method_options,
    profile_options,
)
from penstock.cli.render import (
    answer,
    contents_of,
    evaluate_or_advise,
    evaluation_data,
    other_plan,
    show_evaluation,
    warn_if_old,
)

if TYPE_CHECKING:
    from penstock.plan import Plan
    from penstock.profile import Profile


@click.command("plan")
@click.option("--profile", "source", required=True, help="A profile file, or a built-in model such as gpt2-xl.")
@click.option("--cluster", "cluster_source", required=True, help='A TOML file, or such as "8 x A100-40 @ 100 GB/s".')
@amount_options
@method_options
@click.option("--ignore-memory", is_flag=True, help="Plan even if it does not fit into memory.")
@profile_options
@click.option("-o", "--output", help="Write the plan to this file.")
@click.option("--program", help="Write the program, every action of every device, to this file.")
@click.option("--timeline", help="Write the simulated timeline to this file.")
@click.option("--trace", help="Write a Chrome trace for Perfetto to this file.")
@screen_options
def command(
    screen: Screen,
    source: str,
    cluster_source: str,
    amounts: Amounts,
    method: Method,
    ignore_memory: bool,
    kinds: tuple[str, ...],
    micro_batch_size: int | None,
    sequence: int | None,
    precision: Precision | None,
    output: str | None,
    program: str | None,
    timeline: str | None,
    trace: str | None,
) -> None:
    """Cut a model, place it on a cluster, and order the work; prove that it can run, and simulate it.

    To choose the number of micro-batches: -m auto --global-batch-size 512. To choose the number of devices:
    --devices 1..16, or --under 2s for the fewest that meet a target.
    """
    from penstock.cluster import load_cluster
    from penstock.io import encode_json, write_all
    from penstock.planners.studies import for_whole
    from penstock.simulate import evaluate

    written = (output, program, timeline, trace)
    check_outputs((source, cluster_source), written)
    cluster = load_cluster(cluster_source)
    warn_if_old(screen, cluster)
    wanted = ProfileSource(source, kinds, micro_batch_size, sequence, precision).for_cluster(cluster)
    began = time.perf_counter()
    found = answer(screen, wanted, cluster, cluster_source, amounts, method)
    planning_s = time.perf_counter() - began
    profile = found.problem.profile
    result = evaluate_or_advise(
        screen,
        found.problem,
        found.plan,
        wanted,
        within_memory=not ignore_memory,
        search_space=method.search_space,
    )
    # Files are for the whole cluster, which is what they name; what is shown is for the part that is used.
    kept, kept_result = found.plan, result
    if found.problem.cluster is not cluster:
        kept = for_whole(found.plan, cluster, cluster_source)
        if program or timeline or trace:
            kept_result = evaluate(kept, profile, cluster, within_memory=not ignore_memory)
    contents = contents_of(kept_result, program=program, timeline=timeline, trace=trace)
    write_all(({output: encode_json(kept)} if output else {}) | contents)
    other = other_plan(screen, found.problem, found.plan, method.search_space)
    if screen.as_json:
        figures = evaluation_data(result, profile, other)
        screen.data({"planning_s": planning_s, **figures, **found.tried, "plan": kept})
    show_evaluation(screen, result, profile, other)
    screen.assumptions(*profile.assumptions, *cluster.assumptions)
    for path in written:
        if path:
            screen.wrote(path)
    screen.next(_next(kept, profile, output, trace))


def _next(plan: "Plan", profile: "Profile", output: str | None, trace: str | None) -> str:
    if trace:
        return f"open {trace} in https://ui.perfetto.dev"
    if output:
        return f"penstock report {output}"
    if plan.micro_batch_size != profile.micro_batch_size:
        return "the same again with -o plan.json keeps this plan"
    named = f'--profile {plan.profile.source} --cluster "{plan.cluster.source}"'
    return f"penstock compare {named} -m {plan.num_microbatches}"
