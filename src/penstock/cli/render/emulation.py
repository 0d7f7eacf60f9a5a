"""Showing an emulation: predicted and measured times, the faults, and what to do next."""

from shlex import quote

from penstock.cli.console import Console
from penstock.cli.render.training import prediction_data, show_prediction
from penstock.emulation import Emulation, LinkFault
from penstock.launch import EmulationRun
from penstock.units import show_seconds


def show_emulation(console: Console, emulation: Emulation, run: EmulationRun) -> None:
    """Show the results as text, or as JSON."""
    notes = emulation_notes(emulation, run)
    if run.timelines and run.failure is None:
        show_prediction(console, run.timelines, emulation.evaluation)
    for text in notes:
        console.show(f"  {text}")
    for text in _missed(emulation, run):
        console.warn(text)
    for text in run.limits:
        console.warn(f"{text}: measured times may be limited by this machine; use a larger --slow-down")
    if console.as_json:
        console.data(
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
    """The command that shows the measured timeline with the predicted one."""
    if output is None:
        return "repeat with -o measured.json, then `penstock report measured.json` shows both timelines"
    sources = (("--profile", profile), ("--cluster", cluster))
    return " ".join(["penstock report", quote(output), *(f"{name} {quote(text)}" for name, text in sources if text)])


def emulation_notes(emulation: Emulation, run: EmulationRun) -> list[str]:
    """Remarks on the measured times."""
    notes = []
    faults = emulation.faults
    if not emulation.is_shaped:
        notes.append("links were not shaped and had no latency: only device times correspond to the cluster")
    if emulation.script:
        notes.append("devices computed, with one thread each; links had no latency")
    for slow in faults.slowed:
        notes.append(f"{slow.device} took {slow.factor:g} times as long (--slow)")
    for number, step in sorted(run.changed.items()):
        fault = faults.links[number]
        notes.append(f"{_links(fault)} had {fault.factor:g} times the bandwidth from step {step} on (--link)")
    if faults.slowed or run.changed:
        notes.append("the prediction excludes these faults")
    if any(run.changed.values()) and run.steps:
        steps = f"step {run.steps[0]}" if len(run.steps) == 1 else f"steps {run.steps[0]} to {run.steps[-1]}"
        notes.append(f"measured times are those of {steps}, after all faults")
    return notes


def _missed(emulation: Emulation, run: EmulationRun) -> list[str]:
    """Warnings for faults that were due after the end of the run."""
    if run.failure or run.was_stopped:
        return []
    return [
        f"{_links(fault)} did not change: the run ended before second {fault.at_s:g} of the cluster's time (predicted "
        f"iteration time: {show_seconds(emulation.evaluation.timeline.iteration_s)}); use more --steps"
        for number, fault in enumerate(emulation.faults.links)
        if number not in run.changed
    ]


def _links(fault: LinkFault) -> str:
    return f"links between {fault.ends[0]} and {fault.ends[1]}"
