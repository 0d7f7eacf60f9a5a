"""penstock simulate: the timeline of a plan or program."""

import click

from penstock.cli.console import Console, console_options
from penstock.cli.options import PlanFile, check_outputs, plan_file_options
from penstock.cli.render import bound_of, contents_of, evaluation_data, show_evaluation, warn_if_old


@click.command("simulate")
@plan_file_options
@click.option("--ignore-memory", is_flag=True, help="Simulate even if the plan does not fit into memory.")
@click.option("-o", "--output", help="Write the timeline to this file.")
@click.option("--program", help="Write the program, every action of every device, to this file.")
@click.option("--trace", help="Write a Chrome trace for Perfetto to this file.")
@console_options
def command(
    console: Console,
    plan_file: PlanFile,
    ignore_memory: bool,
    output: str | None,
    program: str | None,
    trace: str | None,
) -> None:
    """Simulate a plan or program: the timeline of every device and the causes of its waits.

    PATH is a plan or program file. The profile and the cluster that it names are read as well.
    """
    from penstock.io import write_all
    from penstock.simulate import evaluate_costs

    check_outputs(plan_file.inputs, (output, program, trace))
    bundle = plan_file.open()
    warn_if_old(console, bundle.cluster)
    with console.working("proving and simulating (the very first run compiles the simulator)"):
        result = evaluate_costs(bundle.costs, program=bundle.program, within_memory=not ignore_memory)
    write_all(contents_of(result, program=program, timeline=output, trace=trace))
    bound = bound_of(result, bundle.profile)
    if console.as_json:
        console.data(evaluation_data(result, bundle.profile, bound))
    show_evaluation(console, result, bundle.profile, bound)
    for written in (output, program, trace):
        if written:
            console.wrote(written)
    console.next(f"open {trace} in https://ui.perfetto.dev" if trace else f"penstock report {plan_file.path}")
