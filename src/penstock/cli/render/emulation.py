"""Showing what came of an emulation: predicted against measured, what went wrong on purpose, and what to do next."""

from shlex import quote

from penstock.cli.console import Screen
from penstock.cli.render.training import prediction_data, show_prediction
from penstock.emulation import Emulation, LinkFault
from penstock.launch import EmulationRun
from penstock.units import show_seconds


def show_emulated(screen: Screen, emulation: Emulation, run: EmulationRun) -> None:
    """For people and machines."""
    notes = emulation_notes(emulation, run)
    if run.timelines and run.failure is None:
        show_prediction(screen, run.timelines, emulation.evaluation)
    for text in notes:
        screen.show(f"  {text}")
    for text in _missed(emulation, run):
        screen.warn(text)
    for text in run.limits:
        screen.warn(f"{text}: what was measured may be this machine's speed; use a larger --slow-down")
    if screen.as_json:
        screen.data(
            {
                "slow_down": emulation.slow_down,
                "predicted_s": emulation.evaluation.timeline.iteration_s,
                "steps": run.steps,
                "measured_s": [timeline.iteration_s for timeline in run.timelines],
                "limits": run.limits,
                "notes": notes,
                "was_stopped": run.was_stopped,
                "error": str(run.failure) if run.failure else None,
                "comparison": prediction_data(emulation.evaluation, run.timelines) if run.timelines else None,
            }
        )


def next_command(output: str | None, profile: str | None, cluster: str | None) -> str:
    """What shows most of what was measured: the timeline beside the predicted one."""
    if output is None:
        return "the same with -o measured.json, then `penstock report measured.json` shows both timelines"
    sources = (("--profile", profile), ("--cluster", cluster))
    return " ".join(["penstock report", quote(output), *(f"{name} {quote(text)}" for name, text in sources if text)])


def emulation_notes(emulation: Emulation, run: EmulationRun) -> list[str]:
    """What to know of what was measured."""
    found = []
    faults = emulation.faults
    if not emulation.is_shaped:
        found.append("links were not shaped and had no latency: only what devices do is as on the cluster")
    if emulation.script:
        found.append("devices computed for real, with one thread each; links had no latency")
    for slow in faults.slowed:
        found.append(f"{slow.device} took {slow.factor:g} times as long, as --slow asked")
    for number, step in sorted(run.changed.items()):
        fault = faults.links[number]
        found.append(f"{_links(fault)} had {fault.factor:g} times the bandwidth from step {step} on, as --link asked")
    if faults.slowed or run.changed:
        found.append("what was predicted is without the faults that were asked for")
    if any(run.changed.values()) and run.steps:
        steps = f"step {run.steps[0]}" if len(run.steps) == 1 else f"steps {run.steps[0]} to {run.steps[-1]}"
        found.append(f"what was measured is of {steps}, when all faults had come")
    return found


def _missed(emulation: Emulation, run: EmulationRun) -> list[str]:
    """Faults that were to come after the end of the run."""
    if run.failure or run.was_stopped:
        return []
    return [
        f"{_links(fault)} did not change: the run was over before second {fault.at_s:g} of the cluster's time (an "
        f"iteration is predicted to take {show_seconds(emulation.evaluation.timeline.iteration_s)}); use more --steps"
        for number, fault in enumerate(emulation.faults.links)
        if number not in run.changed
    ]


def _links(fault: LinkFault) -> str:
    return f"links between {fault.ends[0]} and {fault.ends[1]}"
