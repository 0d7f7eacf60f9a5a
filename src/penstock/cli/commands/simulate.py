"""penstock simulate: the timeline of a plan or program."""

import click

from penstock.cli.console import Screen, screen_options
from penstock.cli.options import Saved, check_outputs, saved_options
from penstock.cli.render import contents_of, evaluation_data, show_evaluation, warn_if_old


@click.command("simulate")
@saved_options
@click.option("--ignore-memory", is_flag=True, help="Simulate even if it does not fit into memory.")
@click.option("-o", "--output", help="Write the timeline to this file.")
@click.option("--program", help="Write the program, every action of every device, to this file.")
@click.option("--trace", help="Write a Chrome trace for Perfetto to this file.")
@screen_options
def command(
    screen: Screen,
    saved: Saved,
    ignore_memory: bool,
    output: str | None,
    program: str | None,
    trace: str | None,
) -> None:
    """The timeline of a plan or program: when every device does what, and why it waits.

    PATH is a plan or program file; the profile and the cluster that it was made for are read again.
    """
    from penstock.io import write_all
    from penstock.simulate import evaluate_costs

    check_outputs(saved.inputs, (output, program, trace))
    opened = saved.open()
    warn_if_old(screen, opened.cluster)
    with screen.working("proving and simulating (the very first run compiles the simulator)"):
        result = evaluate_costs(opened.costs, program=opened.program, within_memory=not ignore_memory)
    write_all(contents_of(result, program=program, timeline=output, trace=trace))
    if screen.as_json:
        screen.data(evaluation_data(result, opened.profile))
    show_evaluation(screen, result, opened.profile)
    for written in (output, program, trace):
        if written:
            screen.wrote(written)
    screen.next(f"open {trace} in https://ui.perfetto.dev" if trace else f"penstock report {saved.path}")
