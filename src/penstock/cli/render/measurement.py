"""Measuring a model for somebody who watches."""

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.cli.console import Screen
from penstock.errors import InputError
from penstock.launch import companions, load_model, run_in_script, script_path
from penstock.profile import Profile
from penstock.profiler import DEFAULT_SECONDS, Steadiness, measure, with_overheads
from penstock.units import counted, show_percent, show_seconds


@dataclass(frozen=True)
class MeasureOptions:
    """How a model is to be measured."""

    micro_batch_sizes: tuple[int, ...] = ()
    blocks: str | None = None
    seconds: float | None = None
    threads: int | None = None
    beside: int = 0
    """How many others measure the same model at the same time."""


def measure_script(screen: Screen, source: str, asked: MeasureOptions) -> Profile:
    """The measured profile of the model that a script's function makes."""
    try:
        import torch
    except ModuleNotFoundError:
        raise InputError("measuring a model needs torch", hint="pip install 'penstock[run]'") from None
    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    limit_s = DEFAULT_SECONDS if asked.seconds is None else asked.seconds
    names = None if asked.blocks is None else [name.strip() for name in asked.blocks.split(",")]
    # What the script prints is not our result, and must not get into our JSON.
    with screen.progress("making the model") as show, redirect_stdout(sys.stderr):
        given = load_model(source)
        if screen.for_people and not screen.notices.is_terminal:
            # Where no line can change, one says what is going to take its time.
            screen.notices.print(
                f"measuring: every block, until its times are steady or {show_seconds(limit_s)} have gone; then for "
                "some seconds, in two processes, what the runtime spends around jobs and messages"
            )
        reports: list[Steadiness] = []

        def report(steadiness: Steadiness) -> None:
            reports.append(steadiness)
            show(
                f"timing every block: {counted(steadiness.num_rounds, 'round')}, {show_seconds(steadiness.seconds)} of "
                f"at most {show_seconds(limit_s)}, steady to {show_percent(steadiness.overall)} (wanted: "
                f"{show_percent(steadiness.wanted)})"
            )

        if asked.beside:
            show(f"waiting for {counted(asked.beside, 'process', 'es')} beside this one to get to work")
        with companions(
            asked.beside,
            source,
            {"blocks": names, "micro_batch_sizes": asked.micro_batch_sizes, "threads": asked.threads},
        ):
            show("finding the blocks")
            found: Profile = run_in_script(
                script_path(source),
                lambda: measure(
                    given.model,
                    given.inputs,
                    given.loss,
                    targets=given.targets,
                    blocks=names,
                    micro_batch_sizes=asked.micro_batch_sizes,
                    seconds=limit_s,
                    report=report,
                ),
            )
        found = run_in_script(
            script_path(source),
            lambda: with_overheads(
                found, given.model, given.inputs, given.loss, targets=given.targets, blocks=names, tell=show
            ),
        )
    if not reports[-1].is_steady:
        screen.warn(
            f"the times are steady to {show_percent(reports[-1].overall)} only; let nothing else run beside, "
            "or allow more --seconds"
        )
    if asked.beside:
        text = f"Measured beside {counted(asked.beside, 'process', 'es')} that did the same."
        found = replace(found, assumptions=(*found.assumptions, text))
    return found
