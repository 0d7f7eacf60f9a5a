"""penstock emulate: run a plan on this machine as if it were the cluster."""

from importlib.util import find_spec
from typing import Any

import click

from penstock.bundle import Opened
from penstock.cli.console import Screen, screen_options
from penstock.cli.options import Saved, check_outputs, saved_options
from penstock.cli.render import next_command, show_emulated
from penstock.emulation import (
    DEFAULT_STEPS,
    DEFAULT_TIMEOUT_S,
    Emulation,
    Faults,
    parse_killed,
    parse_link,
    parse_slowed,
)
from penstock.errors import InputError
from penstock.launch import EmulationRun, check_script, emulate
from penstock.units import counted, show_seconds

AUTO = "auto"
MORE_STEPS = f"the same with --steps {DEFAULT_STEPS}, as step 0 only warms up"


@click.command("emulate")
@saved_options
@click.option(
    "--slow-down",
    default=AUTO,
    help="How many times slower than on the cluster time passes here; auto, if not given: what this machine needs.",
)
@click.option(
    "--steps", type=click.IntRange(1), default=DEFAULT_STEPS, help=f"Iterations; {DEFAULT_STEPS}, the first to warm up."
)
@click.option("--slow", "slowed", multiple=True, help="A device that drags: d1=3x takes three times as long.")
@click.option(
    "--link", "links", multiple=True, help="A link that degrades: d0-d1=0.1x@10s, or between two hosts, or at once."
)
@click.option(
    "--kill",
    "killed",
    multiple=True,
    help="A rank that dies: 2@1 is rank 2 when step 1 begins, which is the second: steps count from 0.",
)
@click.option(
    "--compute",
    "script",
    help="Compute for real instead of sleeping: script.py or script.py:make_model, as `penstock train` takes it.",
)
@click.option("--no-shaping", is_flag=True, help="Over loopback, with links as fast as this machine: needs no root.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_TIMEOUT_S,
    help="Seconds here after which a rank gives up waiting for another; 120 if not given.",
)
@click.option("-o", "--output", help="Write the timeline of a measured iteration to this file.")
@click.option("--trace", help="Write it as a Chrome trace for Perfetto to this file.")
@screen_options
def command(screen: Screen, saved: Saved, output: str | None, trace: str | None, **options: Any) -> int:
    """Run a plan on this machine as if it were the cluster: predicted against measured, without the cluster.

    PATH is a plan or program file. One process for each of its devices runs the real executor and sends real messages;
    devices sleep for their profiled seconds, and links have the cluster's bandwidths, both slowed down.
    """
    check_outputs(saved.inputs, (output, trace))
    opened = saved.open()
    emulation = _emulation(opened, saved.path, options)
    if find_spec("torch") is None:
        raise InputError("emulating needs torch", hint="pip install 'penstock[run]'")
    if emulation.is_shaped:
        from penstock.emulation.network import check_tools

        check_tools()
    for note in opened.costs.notes:
        screen.warn(note)
    emulation = _paced(screen, emulation, options["slow_down"])
    run = _run(screen, emulation)
    _write(screen, run, output, trace)
    show_emulated(screen, emulation, run)
    if run.failure:
        raise run.failure
    if run.was_stopped:
        raise KeyboardInterrupt
    screen.next(MORE_STEPS if run.is_warm_up else next_command(output, saved.source, saved.cluster))
    return 0


def _emulation(opened: Opened, path: str, options: dict[str, Any]) -> Emulation:
    made = Emulation(
        plan=opened.plan,
        profile=opened.profile,
        cluster=opened.cluster,
        program=path if opened.program is not None else None,
        num_steps=options["steps"],
        is_shaped=not options["no_shaping"],
        script=options["script"],
        timeout_s=options["timeout"],
    )
    if made.script is not None:
        if options["slow_down"] != AUTO or options["slowed"]:
            raise InputError(
                "--compute: devices that compute for real have this machine's speed",
                hint="Leave --slow-down and --slow out, or let devices sleep.",
            )
        check_script(made.script)
    if options["links"] and not made.is_shaped:
        raise InputError("--link: without shaping there is no bandwidth to change", hint="Leave --no-shaping out.")
    faults = Faults(
        slowed=tuple(parse_slowed(text, made.devices) for text in options["slowed"]),
        links=tuple(parse_link(text, made.cluster, made.devices) for text in options["links"]),
        killed=tuple(parse_killed(text, len(made.devices), made.num_steps) for text in options["killed"]),
    )
    return _replaced(made, faults=faults)


def _replaced(emulation: Emulation, **changes: Any) -> Emulation:
    import msgspec

    return msgspec.structs.replace(emulation, **changes)


def _paced(screen: Screen, emulation: Emulation, text: str) -> Emulation:
    """With the pace that was asked for, or that this machine needs."""
    from penstock.emulation import slow_down_for

    with screen.working("proving and simulating (the very first run compiles the simulator)"):
        found = emulation.evaluation
    needed = 1.0 if emulation.script else slow_down_for(found)
    if text == AUTO:
        slow_down = needed
    else:
        try:
            slow_down = float(text.strip().rstrip("xX"))
        except ValueError:
            slow_down = 0.0
        if not 0 < slow_down < float("inf"):
            raise InputError(f"{text[:60]!r} is not a factor", where="--slow-down", hint="Write 10, or auto.")
    there, here = found.timeline.iteration_s, found.timeline.iteration_s * slow_down
    pace = f"{slow_down:g} times slower" if slow_down != 1 else "at its own pace"
    also_here = f" there, {show_seconds(here)} here" if slow_down != 1 else ""
    screen.show(
        f"emulating {counted(len(emulation.devices), 'device')} of {emulation.cluster.name}, {pace}: an iteration is "
        f"predicted to take {show_seconds(there)}{also_here}"
    )
    if slow_down < needed:
        screen.warn(
            f"this machine probably needs time to pass {needed:g} times slower for this plan, as --slow-down {AUTO} "
            "lets it: what is measured may be its own speed"
        )
    return _replaced(emulation, slow_down=slow_down, timeout_s=max(emulation.timeout_s, 10 * here))


def _run(screen: Screen, emulation: Emulation) -> EmulationRun:
    predicted_s = emulation.evaluation.timeline.iteration_s
    with screen.progress(f"starting {counted(len(emulation.devices), 'rank')}") as show:

        def watch(step: int, timeline: Any) -> None:
            warm = " (warming up)" if step == 0 else ""
            line = (
                f"step {step} ({step + 1} of {emulation.num_steps}): {show_seconds(timeline.iteration_s)}, "
                f"predicted {show_seconds(predicted_s)}{warm}"
            )
            show(line)
            screen.show(line)

        run = emulate(emulation, watch)
    if screen.verbose and run.log.strip():
        screen.notices.print(run.log.rstrip())
    return run


def _write(screen: Screen, run: EmulationRun, output: str | None, trace: str | None) -> None:
    from penstock.cli.commands.train import write_timeline

    write_timeline(screen, run.timelines, output, trace)
    if run.is_warm_up and (output or trace):
        screen.warn("what was written is of step 0, which warms up and says little: no other step was measured")
