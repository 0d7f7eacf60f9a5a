"""penstock train: train a model with a plan."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import click

from penstock.bundle import PlanBundle
from penstock.cli.console import Console, console_options
from penstock.cli.options import check_outputs, elastic_options, host_options, training_options
from penstock.cli.render import show_training, training_data, warn_if_old
from penstock.errors import InputError
from penstock.launch import (
    ElasticOptions,
    Hosts,
    Stopping,
    TrainOptions,
    TrainResult,
    check_script,
    default_threads,
    sbatch_script,
    script_path,
    shell_command,
    train,
    train_adaptively,
    train_command,
    train_elastic,
)
from penstock.timeline import Timeline

INTERRUPTED = 130


@click.command("train")
@training_options
@host_options
@elastic_options
@click.option(
    "--also-single-process", is_flag=True, help="Also train in a single process, and compare losses and speed."
)
@click.option(
    "--adapt",
    type=click.Choice(["off", "advise", "on"]),
    default="off",
    show_default=True,
    help="Change the plan when measured speeds make it worth it, or only state what would be gained.",
)
@click.option("--dry-run", is_flag=True, help="Print the command that starts the ranks, and exit.")
@click.option("--slurm", is_flag=True, help="With --dry-run: print a script for sbatch instead.")
@click.option("-o", "--output", help="Write the timeline of a measured iteration to this file.")
@click.option("--trace", help="Write this iteration as a Chrome trace for Perfetto to this file.")
@console_options
def command(
    console: Console,
    options: TrainOptions,
    hosts: Hosts,
    elastic: ElasticOptions,
    also_single_process: bool,
    adapt: str,
    dry_run: bool,
    slurm: bool,
    output: str | None,
    trace: str | None,
) -> int:
    """Train a model with a plan, with one process (rank) for each of its devices.

    SCRIPT is script.py or script.py:make_model, with the function that `penstock profile` measures: it returns (model,
    inputs, loss, targets). The script may also define make_batches(num_rows), which yields pairs of inputs and targets,
    make_optimizer(parameters) and make_scheduler(optimizer). At the end, measured times are compared with predicted
    ones. Ranks of one host open no port to the network. On several hosts (--nnodes), run the command on each.
    """
    from penstock.simulate import evaluate_costs

    check_script(options.script)
    check_outputs((script_path(options.script), options.plan, options.profile, options.cluster), (output, trace))
    options, bundle = options.open()
    warn_if_old(console, bundle.cluster)
    elastic.check(len(bundle.plan.devices), hosts.nnodes)
    num_ranks = hosts.num_local_ranks(bundle)
    options = replace(options, threads=options.threads or default_threads(num_ranks))
    arguments = train_command(options, hosts, num_ranks)
    if slurm:
        if not dry_run:
            raise InputError("--slurm requires --dry-run", hint="Slurm jobs need no option: srun penstock train ...")
        console.show(_sbatch_script(options, bundle).rstrip())
        return 0
    if dry_run:
        console.data({"command": arguments})
        console.show(shell_command(arguments))
        return 0
    if find_spec("torch") is None:
        raise InputError("training needs torch", hint="pip install 'penstock[run]'")
    if also_single_process and options.checkpoint is not None:
        raise InputError("--also-single-process and --checkpoint are mutually exclusive", hint="Leave one of them out.")
    if also_single_process and hosts.nnodes > 1:
        raise InputError("--also-single-process requires --nnodes 1", hint="Leave it out, or train on one host.")
    if also_single_process and elastic.elastic:
        raise InputError("--also-single-process and --elastic are mutually exclusive", hint="Leave one of them out.")
    _check_adapt(adapt, hosts, elastic, also_single_process=also_single_process)
    with console.working("proving and simulating (the very first run compiles the simulator)"):
        predicted = evaluate_costs(bundle.costs)
    for note in (*bundle.costs.notes, *_thread_notes(bundle, options), *_unsteady_notes(bundle)):
        console.warn(note)
    single: TrainResult | None = None
    if also_single_process:
        single = train(console, options, predicted, hosts=hosts, num_ranks=1, single_process=True)
        if single.failure:
            raise single.failure
    result = TrainResult((), (), (), True, None)
    if single is None or not single.was_stopped:
        if elastic.elastic:
            result = train_elastic(console, options, elastic, predicted, bundle, may_stop=True)
        elif adapt != "off":
            result, predicted = train_adaptively(
                console, options, predicted, bundle, hosts=hosts, is_advice=adapt == "advise", may_stop=True
            )
        else:
            result = train(console, options, predicted, hosts=hosts, num_ranks=num_ranks, may_stop=True)
    write_timeline(console, result.timelines, output, trace)
    if console.as_json:
        console.data(training_data(result, predicted, single, bundle.profile))
    if result.failure is None:
        show_training(console, result, predicted, single, bundle.profile)
    if result.failure:
        raise result.failure
    if result.was_stopped:
        raise KeyboardInterrupt
    if result.stopping is not None:
        console.warn(_how_to_go_on(result.stopping, options))
        return INTERRUPTED
    console.next(f"penstock check --numerics {options.script} {options.plan}")
    return 0


def _check_adapt(adapt: str, hosts: Hosts, elastic: ElasticOptions, *, also_single_process: bool) -> None:
    if adapt != "off" and elastic.elastic:
        raise InputError("--adapt and --elastic are mutually exclusive", hint="Leave one of them out.")
    if adapt == "on" and hosts.nnodes > 1:
        raise InputError("--adapt on requires --nnodes 1", hint="Use --adapt advise on several hosts.")
    if adapt == "on" and also_single_process:
        raise InputError("--also-single-process and --adapt on are mutually exclusive", hint="Leave one of them out.")


def _sbatch_script(options: TrainOptions, bundle: PlanBundle) -> str:
    """A script for sbatch with a host for each of the plan."""
    from penstock.profile import find_kind

    used = [device for device in bundle.cluster.devices if device.name in bundle.plan.devices]
    nnodes = len({device.host for device in used})
    endpoint = "host" if nnodes > 1 else None  # Slurm tells the real one
    num_ranks = max(Hosts(nnodes, number, endpoint).num_local_ranks(bundle) for number in range(nnodes))
    uses_accelerators = any(find_kind(device.kind) is not None for device in used)
    threads = options.threads or 1
    return sbatch_script(options.arguments, nnodes, num_ranks, threads=threads, uses_accelerators=uses_accelerators)


def _how_to_go_on(stopping: Stopping, options: TrainOptions) -> str:
    """What follows after a signal has ended the run."""
    done = f"a signal ended the run after {stopping.num_steps} of {options.steps} steps"
    if stopping.is_saved:
        return f"{done}; they are saved in {options.checkpoint}. To go on, run the same command again."
    return f"{done}, and nothing is saved. Use --checkpoint to be able to go on."


def _thread_notes(bundle: PlanBundle, options: TrainOptions) -> list[str]:
    """Warnings if ranks use another number of threads than the profile."""
    kinds = {device.kind for device in bundle.cluster.devices if device.name in bundle.plan.devices}
    here = f"cpu-{options.threads}-thread{'' if options.threads == 1 else 's'}"
    return [
        f"the plan is for devices of kind {kind}, but ranks on this host are {here}: the prediction does not apply"
        for kind in sorted(kinds)
        if kind.startswith("cpu-") and kind != here
    ]


def _unsteady_notes(bundle: PlanBundle) -> list[str]:
    """Warn if the profile's times varied too much: predictions from them are unreliable."""
    if bundle.profile.is_steady:
        return []
    return ["the times of the profile are not steady, so predictions may be off: profile again on an idle machine"]


def write_timeline(console: Console, measured: Sequence[Timeline], output: str | None, trace: str | None) -> None:
    """Write the median iteration. A run that was stopped has those up to then."""
    from penstock.io import write_all
    from penstock.report.analysis.prediction import median_iteration
    from penstock.report.trace import chrome_trace
    from penstock.timeline import encode_timeline

    if not (output or trace):
        return
    if not measured:
        console.warn("no iteration was measured completely, so no timeline is written")
        return
    timeline = median_iteration(measured)
    contents = {output: encode_timeline(timeline)} if output else {}
    if trace:
        contents[trace] = chrome_trace(timeline)
    write_all(contents)
    for path in contents:
        console.wrote(path)
