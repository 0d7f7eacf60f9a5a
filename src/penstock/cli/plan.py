"""penstock plan: cut a model, place it, order the work; prove and simulate it."""

import time

import click

from penstock.cli.evaluation import contents_of, evaluation_data, show_evaluation
from penstock.cli.screen import Screen, screen_options
from penstock.cli.searching import search
from penstock.cli.sources import Precision, ProfileSource, check_outputs, profile_options
from penstock.errors import InputError


@click.command("plan")
@click.option("--profile", "source", required=True, help="A profile file, or a built-in model such as gpt2-xl.")
@click.option("--cluster", "cluster_source", required=True, help='A TOML file, or such as "8 x A100-40 @ 100 GB/s".')
@click.option("-m", "--microbatches", type=click.IntRange(1, 2**24), default=16, show_default=True)
@click.option("--planner", default="balanced", show_default=True, help="How to cut and place.")
@click.option("--schedule", help="How to order the work; what the planner plans for, if not given.")
@click.option("--stages", type=int, help="Devices in the row; all, or as many as there are units, if not given.")
@click.option("--chunks", type=int, help="Segments a device; what the schedule is made for, if not given.")
@click.option("--shape", type=click.Choice(["straight", "loop", "v"]), help="How segments lie on the devices.")
@click.option("--split-backward", is_flag=True, help="Run the backward as two jobs under any schedule.")
@click.option("--budget", help="For auto: how long to search, such as 30s; Ctrl-C takes the best so far.")
@click.option("--work", type=int, help="For auto: how many plans to look at; the same work gives the same plan.")
@click.option("--seed", type=int, default=0, help="For auto: where its random changes begin.")
@click.option("--no-replication", is_flag=True, help="For auto: one device a segment.")
@click.option("--one-cut", is_flag=True, help="For auto: forward and backward cut at the same places.")
@click.option("--no-virtual-stages", is_flag=True, help="For auto: one segment a device.")
@click.option("--no-recomputation", is_flag=True, help="For auto: keep what the forward saves.")
@click.option("--recompute", is_flag=True, help="Keep only each segment's input, and run its forward again.")
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
    microbatches: int,
    planner: str,
    schedule: str | None,
    stages: int | None,
    chunks: int | None,
    shape: str | None,
    split_backward: bool,
    recompute: bool,
    ignore_memory: bool,
    budget: str | None,
    work: int | None,
    seed: int,
    no_replication: bool,
    one_cut: bool,
    no_virtual_stages: bool,
    no_recomputation: bool,
    kinds: tuple[str, ...],
    rows: int | None,
    sequence: int | None,
    precision: Precision | None,
    output: str | None,
    program: str | None,
    timeline: str | None,
    trace: str | None,
) -> None:
    """Cut a model, place it on a cluster, and order the work; prove that it can run, and simulate it."""
    from penstock.cluster.load import load_cluster
    from penstock.files import encode_json, write_all
    from penstock.plan.shapes import Shape
    from penstock.planners import find_planner
    from penstock.planners.auto import Freedoms
    from penstock.planners.make import make_problem
    from penstock.simulate.evaluate import evaluate

    check_outputs((source, cluster_source), (output, program, timeline, trace))
    cluster = load_cluster(cluster_source)
    wanted = ProfileSource(source, kinds, rows, sequence, precision).for_cluster(cluster)
    profile = wanted.load()
    began = time.perf_counter()
    problem = make_problem(
        profile,
        cluster,
        microbatches,
        planner=planner,
        schedule=schedule,
        split_backward=split_backward,
        recompute=recompute,
        num_stages=stages,
        num_chunks=chunks,
        shape=Shape(shape) if shape else None,
        profile_source=wanted.text,
        cluster_source=cluster_source,
    )
    freedoms = Freedoms(
        replication=not no_replication,
        two_cuts=not one_cut,
        virtual_stages=not no_virtual_stages,
        recomputation=not no_recomputation,
    )
    if planner == "auto":
        found = search(screen, problem, freedoms=freedoms, budget=budget, work=work, seed=seed)
    elif freedoms != Freedoms() or budget or work is not None:
        raise InputError("--budget, --work and the freedoms are for the planner auto", hint="Add --planner auto.")
    else:
        with screen.working("planning"):
            found = find_planner(planner).plan(problem)
    planning_s = time.perf_counter() - began
    with screen.working("proving and simulating (the very first run compiles the simulator)"):
        result = evaluate(found, profile, cluster, within_memory=not ignore_memory)
    contents = contents_of(result, program=program, timeline=timeline, trace=trace)
    write_all(({output: encode_json(found)} if output else {}) | contents)
    if screen.as_json:
        screen.data({"planning_s": planning_s, **evaluation_data(result, profile), "plan": found})
    show_evaluation(screen, result, profile)
    screen.assumptions(*profile.assumptions, *cluster.assumptions)
    for path in (output, program, timeline, trace):
        if path:
            screen.wrote(path)
    if trace:
        screen.next(f"open {trace} in https://ui.perfetto.dev")
    elif output:
        screen.next(f"penstock simulate {output} --trace trace.json")
    else:
        screen.next(f'penstock compare --profile {wanted.text} --cluster "{cluster_source}" -m {microbatches}')
