"""Playing a scenario for `penstock emulate --scenario`: checks, progress, and the results."""

import statistics
from typing import Any

from penstock.cli.console import Console
from penstock.emulation import Emulation, load_scenario
from penstock.errors import InputError
from penstock.launch import AdaptOptions, ScenarioRun, play_scenario
from penstock.units import show_count, show_seconds

EXCLUDED = ("slowed", "links", "killed", "script")
OPTIONS = {"slowed": "--slow", "links": "--link", "killed": "--kill", "script": "--compute"}
MIN_STEPS = 3
"""Steps of a plan of which a median is shown."""


def with_scenario(emulation: Emulation, path: str, options: dict[str, Any]) -> Emulation:
    """The emulation with the scenario of a file.

    Raises:
        InputError: The file is invalid, or options do not go with it.
    """
    from msgspec.structs import replace

    for name in EXCLUDED:
        if options[name]:
            raise InputError(
                f"{OPTIONS[name]} cannot be used with --scenario", hint="State what happens in the scenario file."
            )
    if emulation.program is not None:
        raise InputError("a scenario needs a plan, but this file contains a program", where=emulation.program)
    scenario = load_scenario(path, emulation.cluster)
    if scenario.of("link") and not emulation.is_shaped:
        raise InputError("a scenario that changes links cannot be used with --no-shaping", where=path)
    return replace(emulation, scenario=scenario, num_steps=scenario.num_steps)


def run_scenario(console: Console, emulation: Emulation, mode: str) -> None:
    """Play a scenario, and show what happened.

    Raises:
        PenstockError: The run failed for another reason than the scenario's losses.
        KeyboardInterrupt: The user ended it.
    """
    assert emulation.scenario is not None, "with_scenario has set it"
    for item in emulation.scenario.events:
        console.show(f"  second {item.at_s:g}: {item.sentence}")
    with console.progress(f"starting {show_count(len(emulation.devices), 'rank')}"):
        run = play_scenario(emulation, AdaptOptions(mode), console.show)
    if console.verbose and run.log.strip():
        console.stderr.print(run.log.rstrip())
    _show(console, emulation, run)
    if run.failure is not None:
        raise run.failure
    if run.was_stopped:
        raise KeyboardInterrupt


def _show(console: Console, emulation: Emulation, run: ScenarioRun) -> None:
    rows = []
    for number in range(len(run.changes) + 1):
        seconds = [item.iteration_s for item in run.steps if item.plan == number][1:]
        if len(seconds) < MIN_STEPS:
            continue
        change = run.changes[number - 1] if number else None
        expected_s = change.predicted_s if change else emulation.evaluation.timeline.iteration_s
        rows.append(
            (
                str(number),
                "the plan given" if change is None else change.why,
                str(change.step if change else 0),
                "" if change is None else show_seconds(change.seconds),
                show_seconds(expected_s),
                show_seconds(statistics.median(seconds)),
            )
        )
    console.table(
        "plans that ran", ("plan", "why", "from step", "change", "expected", "measured (median)"), rows, left=2
    )
    console.show(f"{show_count(len(run.steps), 'step')} ran, {show_count(run.steps_lost, 'step')} lost")
    if console.as_json:
        console.data(
            {
                "slow_down": emulation.slow_down,
                "steps": [item.__dict__ for item in run.steps],
                "changes": [item.__dict__ for item in run.changes],
                "decisions": [
                    {"step": item.step, **item.decision._asdict(), "sentence": item.decision.sentence}
                    for item in run.decisions
                ],
                "steps_lost": run.steps_lost,
                "was_stopped": run.was_stopped,
                "error": str(run.failure) if run.failure else None,
            }
        )
