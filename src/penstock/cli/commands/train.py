"""penstock train: train a model by a plan."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import click

from penstock.bundle import Opened
from penstock.cli.console import Screen, screen_options
from penstock.cli.options import check_outputs, host_options, training_options
from penstock.cli.render import show_trained, trained_data, warn_if_old
from penstock.errors import InputError
from penstock.launch import (
    Hosts,
    Trained,
    Training,
    check_script,
    command_of,
    default_threads,
    script_path,
    shown_command,
    train,
)
from penstock.timeline import Timeline


@click.command("train")
@training_options
@host_options
@click.option(
    "--also-single-process", is_flag=True, help="Train in one process too, and show both losses and the speed-up."
)
@click.option("--dry-run", is_flag=True, help="Only print the command that would be run.")
@click.option("-o", "--output", help="Write the timeline of a measured iteration to this file.")
@click.option("--trace", help="Write it as a Chrome trace for Perfetto to this file.")
@screen_options
def command(
    screen: Screen,
    asked: Training,
    hosts: Hosts,
    also_single_process: bool,
    dry_run: bool,
    output: str | None,
    trace: str | None,
) -> int:
    """Train a model by a plan: one process (rank) for each of its devices, started by torchrun.

    SCRIPT is script.py or script.py:make_model, with the function that `penstock profile` measures: it returns (model,
    inputs, loss, targets). The script may also have make_batches(num_rows), which gives pairs of inputs and targets,
    make_optimizer(parameters) and make_scheduler(optimizer). At the end: what was predicted, and what was measured.
    """
    from penstock.simulate import evaluate_costs

    check_script(asked.script)
    check_outputs((script_path(asked.script), asked.plan, asked.profile, asked.cluster), (output, trace))
    asked, opened = asked.open()
    warn_if_old(screen, opened.cluster)
    num_ranks = hosts.num_ranks_here(opened)
    asked = replace(asked, threads=asked.threads or default_threads(num_ranks))
    words = command_of(asked, hosts, num_ranks)
    if dry_run:
        screen.data({"command": words})
        screen.show(shown_command(words))
        return 0
    if find_spec("torch") is None:
        raise InputError("training needs torch", hint="pip install 'penstock[run]'")
    if also_single_process and asked.checkpoint is not None:
        raise InputError("--also-single-process begins anew, and --checkpoint goes on", hint="Leave one of them out.")
    if also_single_process and hosts.nnodes > 1:
        raise InputError("--also-single-process is for one host", hint="Leave it out, or train on one host.")
    with screen.working("proving and simulating (the very first run compiles the simulator)"):
        predicted = evaluate_costs(opened.costs)
    for note in (*opened.costs.notes, *_thread_notes(opened, asked), *_unsteady_notes(opened)):
        screen.warn(note)
    alone: Trained | None = None
    if also_single_process:
        alone = train(screen, asked, predicted, hosts=hosts, num_ranks=1, alone=True)
        if alone.failure:
            raise alone.failure
    trained = Trained((), (), (), True, None)
    if alone is None or not alone.was_stopped:
        trained = train(screen, asked, predicted, hosts=hosts, num_ranks=num_ranks)
    write_timeline(screen, trained.timelines, output, trace)
    if screen.as_json:
        screen.data(trained_data(trained, predicted, alone))
    if trained.failure is None:
        show_trained(screen, trained, predicted, alone)
    if trained.failure:
        raise trained.failure
    if trained.was_stopped:
        raise KeyboardInterrupt
    screen.next(f"penstock check --numerics {asked.script} {asked.plan}")
    return 0


def _thread_notes(opened: Opened, asked: Training) -> list[str]:
    """Times that were measured with other threads than ranks have are no prediction."""
    kinds = {device.kind for device in opened.cluster.devices if device.name in opened.plan.devices}
    here = f"cpu-{asked.threads}-thread{'' if asked.threads == 1 else 's'}"
    return [
        f"the plan is for devices of kind {kind}, but ranks here are {here}: what is predicted does not hold for them"
        for kind in sorted(kinds)
        if kind.startswith("cpu-") and kind != here
    ]


def _unsteady_notes(opened: Opened) -> list[str]:
    """Times that were measured on a busy machine are no prediction either."""
    return [f"the profile's times may be off: {text}" for text in opened.profile.assumptions if "NOT steady" in text]


def write_timeline(screen: Screen, measured: Sequence[Timeline], output: str | None, trace: str | None) -> None:
    """Of what there is: a run that was stopped has what it had until then."""
    from penstock.io import write_all
    from penstock.report.analysis.prediction import typical
    from penstock.report.trace import chrome_trace
    from penstock.timeline import encode_timeline

    if not (output or trace):
        return
    if not measured:
        screen.warn("no iteration was measured to its end, so no timeline is written")
        return
    timeline = typical(measured)
    contents = {output: encode_timeline(timeline)} if output else {}
    if trace:
        contents[trace] = chrome_trace(timeline)
    write_all(contents)
    for path in contents:
        screen.wrote(path)
