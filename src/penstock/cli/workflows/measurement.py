"""Measuring the model of a script, with progress."""

import sys
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.cli.console import Console
from penstock.errors import InputError
from penstock.launch import busy_processes, load_model, run_in_script, script_path
from penstock.profile import Profile
from penstock.profiler import (
    DEFAULT_SECONDS,
    Steadiness,
    find_chain,
    in_precision,
    indistinct_parts,
    measure,
    with_overheads,
)
from penstock.units import show_count, show_percent, show_seconds


@dataclass(frozen=True)
class MeasureOptions:
    """Options of measuring a model."""

    micro_batch_sizes: tuple[int, ...] = ()
    blocks: str | None = None
    seconds: float | None = None
    threads: int | None = None
    busy_processes: int = 0
    """The number of other processes that measure the same model at the same time."""
    remeasure_overheads: bool = False
    device: str | None = None
    """The device to measure; None: that of the model."""
    precision: str | None = None
    """The precision of training; None: that of the model."""


def measure_script(console: Console, source: str, options: MeasureOptions) -> Profile:
    """Measure the model that a script's function returns."""
    try:
        import torch
    except ModuleNotFoundError:
        raise InputError("measuring a model needs torch", hint="pip install 'penstock[run]'") from None
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    limit_s = DEFAULT_SECONDS if options.seconds is None else options.seconds
    names = None if options.blocks is None else [name.strip() for name in options.blocks.split(",")]
    # The output of the script is not part of the result, and must not get into the JSON.
    with console.progress("creating the model") as show, redirect_stdout(sys.stderr), ExitStack() as stack:
        spec = load_model(source, options.device)
        sample = stack.enter_context(in_precision(options.precision, spec.model, spec.inputs, spec.loss))
        spec = spec._replace(inputs=sample.inputs, loss=sample.loss)
        if console.shows_text and not console.stderr.is_terminal:
            # Without a terminal there is no line that changes, so announce what takes long.
            console.stderr.print(
                f"measuring every block until its times are steady, for at most {show_seconds(limit_s)}; then the "
                "runtime's overhead, for a few seconds if it is not known for this machine"
            )
        reports: list[Steadiness] = []

        def report(steadiness: Steadiness) -> None:
            reports.append(steadiness)
            show(
                f"timing every block: {show_count(steadiness.num_rounds, 'round')}, {show_seconds(steadiness.seconds)} "
                f"of at most {show_seconds(limit_s)}, steady to {show_percent(steadiness.overall)} "
                f"(target: {show_percent(steadiness.tolerance)})"
            )

        show("finding the blocks")
        chain = run_in_script(script_path(source), lambda: find_chain(spec.model, names, spec.inputs))
        if options.busy_processes:
            show(f"waiting for {show_count(options.busy_processes, 'other process', 'es')} to start measuring")
        with busy_processes(
            options.busy_processes,
            source,
            {
                "blocks": names,
                "micro_batch_sizes": options.micro_batch_sizes,
                "threads": options.threads,
                "device": options.device,
                "precision": options.precision,
            },
        ):
            profile: Profile = run_in_script(
                script_path(source),
                lambda: measure(
                    spec.model,
                    spec.inputs,
                    spec.loss,
                    targets=spec.targets,
                    blocks=chain,
                    micro_batch_sizes=options.micro_batch_sizes,
                    seconds=limit_s,
                    report=report,
                    precision=options.precision,
                ),
            )
        profile = run_in_script(
            script_path(source),
            lambda: with_overheads(
                profile,
                spec.model,
                spec.inputs,
                spec.loss,
                targets=spec.targets,
                blocks=chain,
                remeasure=options.remeasure_overheads,
                report=show,
            ),
        )
    if not reports[-1].is_steady:
        console.warn(
            f"the times are only steady to {show_percent(reports[-1].overall)}; run nothing else at the same time, or "
            "use more --seconds"
        )
    for overhead in profile.overheads:
        parts = indistinct_parts(overhead)
        if parts:
            console.warn(
                f"the runtime's overhead {' and '.join(parts)} could not be distinguished from noise, so plans assume "
                "none; measure on an idle machine"
            )
    if options.busy_processes:
        text = f"Measured while {show_count(options.busy_processes, 'other process', 'es')} ran the same measurement."
        profile = replace(profile, assumptions=(*profile.assumptions, text))
    return profile
