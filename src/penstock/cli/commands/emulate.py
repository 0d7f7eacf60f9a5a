"""penstock emulate: run a plan on this machine as if it were the cluster."""

from importlib.util import find_spec
from typing import Any

import click

from penstock.bundle import PlanBundle
from penstock.cli.console import Console, console_options
from penstock.cli.options import PlanFile, check_outputs, plan_file_options
from penstock.cli.render import next_command, show_emulation
from penstock.cli.workflows import run_scenario, with_scenario
from penstock.emulation import (
    DEFAULT_STEPS,
    DEFAULT_TIMEOUT_S,
    Emulation,
    Faults,
    parse_killed_rank,
    parse_link_fault,
    parse_slow_device,
)
from penstock.errors import InputError
from penstock.launch import EmulationRun, check_script, emulate
from penstock.units import show_count, show_seconds

AUTO = "auto"
MORE_STEPS = f"repeat with --steps {DEFAULT_STEPS}: step 0 is only a warm-up"


@click.command("emulate")
@plan_file_options
@click.option(
    "--slow-down",
    default=AUTO,
    help="Factor by which to run slower than the cluster [default: auto, estimated for this machine].",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=DEFAULT_STEPS,
    help=f"Iterations, the first one a warm-up [default: {DEFAULT_STEPS}].",
)
@click.option("--slow", "slowed", multiple=True, help="Slow a device down: d1=3x makes it take three times as long.")
@click.option(
    "--link",
    "links",
    multiple=True,
    help="Degrade a link, or those between two hosts: d0-d1=0.1x@10s, or d0-d1=0.1x from the start.",
)
@click.option(
    "--kill",
    "killed",
    multiple=True,
    help="Kill a rank: 2@1 kills rank 2 at the start of step 1. Steps count from 0.",
)
@click.option(
    "--compute",
    "script",
    help="Compute instead of sleeping: script.py or script.py:make_model, as for `penstock train`.",
)
@click.option("--scenario", help="Play a scenario: slow devices and links, losses and returns over time (TOML file).")
@click.option(
    "--adapt",
    type=click.Choice(["off", "advise", "on"]),
    default="on",
    show_default=True,
    help="With --scenario: change plans when measured speeds make it worth it, only say so, or neither.",
)
@click.option("--no-shaping", is_flag=True, help="Use loopback, with links as fast as this machine; needs no root.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_TIMEOUT_S,
    help="Seconds that a rank waits for another one, in this machine's time [default: 120].",
)
@click.option("-o", "--output", help="Write the timeline of a measured iteration to this file.")
@click.option("--trace", help="Write this iteration as a Chrome trace for Perfetto to this file.")
@console_options
def command(console: Console, plan_file: PlanFile, output: str | None, trace: str | None, **options: Any) -> int:
    """Run a plan on this machine as if it were the cluster, and compare measured with predicted times.

    PATH is a plan or program file. One process per device runs the real executor and sends real messages. Devices sleep
    for their profiled seconds, and links have the cluster's bandwidths; --slow-down scales both.
    """
    scenario = options["scenario"]
    check_outputs((*plan_file.inputs, scenario), (output, trace))
    if scenario and (output or trace):
        raise InputError("-o and --trace cannot be used with --scenario", hint="Leave them out, or use --json.")
    bundle = plan_file.open().with_own_messages()
    emulation = _emulation(bundle, plan_file.path, options)
    if find_spec("torch") is None:
        raise InputError("emulation needs torch", hint="pip install 'penstock[run]'")
    if emulation.is_shaped:
        from penstock.emulation.network import check_tools

        check_tools()
    for note in bundle.costs.notes:
        console.warn(note)
    emulation = _set_slow_down(console, emulation, options["slow_down"])
    if emulation.scenario is not None:
        run_scenario(console, emulation, options["adapt"])
        return 0
    run = _run(console, emulation)
    _write(console, run, output, trace)
    show_emulation(console, emulation, run)
    if run.failure:
        raise run.failure
    if run.was_stopped:
        raise KeyboardInterrupt
    console.next(MORE_STEPS if run.is_warm_up else next_command(output, plan_file.source, plan_file.cluster))
    return 0


def _emulation(bundle: PlanBundle, path: str, options: dict[str, Any]) -> Emulation:
    emulation = Emulation(
        plan=bundle.plan,
        profile=bundle.profile,
        cluster=bundle.cluster,
        program=path if bundle.program is not None else None,
        num_steps=options["steps"],
        is_shaped=not options["no_shaping"],
        script=options["script"],
        timeout_s=options["timeout"],
    )
    if emulation.script is not None:
        if options["slow_down"] != AUTO or options["slowed"]:
            raise InputError(
                "--compute cannot be used with --slow-down or --slow: computing devices run at this machine's speed",
                hint="Leave --slow-down and --slow out, or leave --compute out.",
            )
        check_script(emulation.script)
    if options["scenario"]:
        return with_scenario(emulation, options["scenario"], options)
    if options["links"] and not emulation.is_shaped:
        raise InputError("--link cannot be used with --no-shaping", hint="Leave --no-shaping out.")
    faults = Faults(
        slowed=tuple(parse_slow_device(text, emulation.devices) for text in options["slowed"]),
        links=tuple(parse_link_fault(text, emulation.cluster, emulation.devices) for text in options["links"]),
        killed=tuple(
            parse_killed_rank(text, len(emulation.devices), emulation.num_steps) for text in options["killed"]
        ),
    )
    return _replaced(emulation, faults=faults)


def _replaced(emulation: Emulation, **changes: Any) -> Emulation:
    import msgspec

    return msgspec.structs.replace(emulation, **changes)


def _set_slow_down(console: Console, emulation: Emulation, text: str) -> Emulation:
    """Set the slow-down: that of the option, or what this machine needs."""
    from penstock.emulation import choose_slow_down

    with console.working("proving and simulating (the very first run compiles the simulator)"):
        evaluation = emulation.evaluation
    needed = 1.0 if emulation.script else choose_slow_down(evaluation)
    if text == AUTO:
        slow_down = needed
    else:
        try:
            slow_down = float(text.strip().rstrip("xX"))
        except ValueError:
            slow_down = 0.0
        if not 0 < slow_down < float("inf"):
            raise InputError(
                f"{text[:60]!r} is not a positive number", where="--slow-down", hint="Use, for example, 10 or auto."
            )
    predicted_s = evaluation.timeline.iteration_s
    here_s = predicted_s * slow_down
    pace = f"{slow_down:g} times slower" if slow_down != 1 else "at full speed"
    also_here = f" on the cluster, {show_seconds(here_s)} on this machine" if slow_down != 1 else ""
    console.show(
        f"emulating {show_count(len(emulation.devices), 'device')} of {emulation.cluster.name}, {pace}: predicted "
        f"iteration time {show_seconds(predicted_s)}{also_here}"
    )
    if slow_down < needed:
        console.warn(
            f"this machine probably needs --slow-down {needed:g} for this plan (--slow-down {AUTO} chooses it): "
            "measured times may be limited by this machine"
        )
    return _replaced(emulation, slow_down=slow_down, timeout_s=max(emulation.timeout_s, 10 * here_s))


def _run(console: Console, emulation: Emulation) -> EmulationRun:
    predicted_s = emulation.evaluation.timeline.iteration_s
    with console.progress(f"starting {show_count(len(emulation.devices), 'rank')}") as show:

        def watch(step: int, timeline: Any) -> None:
            warm = " (warming up)" if step == 0 else ""
            line = (
                f"step {step} ({step + 1} of {emulation.num_steps}): {show_seconds(timeline.iteration_s)}, "
                f"predicted {show_seconds(predicted_s)}{warm}"
            )
            show(line)
            console.show(line)

        run = emulate(emulation, watch)
    if console.verbose and run.log.strip():
        console.stderr.print(run.log.rstrip())
    return run


def _write(console: Console, run: EmulationRun, output: str | None, trace: str | None) -> None:
    from penstock.cli.commands.train import write_timeline

    write_timeline(console, run.timelines, output, trace)
    if run.is_warm_up and (output or trace):
        console.warn("only step 0, a warm-up, was measured: the written timeline is not representative")
