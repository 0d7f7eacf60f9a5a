"""Showing and writing what came of a plan; shared by plan, simulate and check."""

from typing import Any

from penstock.cli.console import Screen
from penstock.plan import Plan
from penstock.planners.bounds import Bound, lower_bound
from penstock.planners.studies import Alternative
from penstock.profile import Profile
from penstock.program import encode_program
from penstock.report.text import explain, gap, prover, shown_group
from penstock.simulate import Evaluation
from penstock.timeline import bubble_fraction, critical_path, device_uses, encode_timeline
from penstock.units import counted, show_bytes, show_percent, show_seconds


def contents_of(
    result: Evaluation, *, program: str | None = None, timeline: str | None = None, trace: str | None = None
) -> dict[str, bytes]:
    """What is to be written to the files that were asked for."""
    contents: dict[str, bytes] = {}
    if program:
        contents[program] = encode_program(result.program)
    if timeline:
        contents[timeline] = encode_timeline(result.timeline)
    if trace:
        from penstock.report.trace import chrome_trace

        contents[trace] = chrome_trace(result.timeline)
    return contents


def evaluation_data(result: Evaluation, profile: Profile, alternative: Alternative | None = None) -> dict[str, Any]:
    """The figures of an evaluation, for machines, and the words that people get."""
    uses = device_uses(result.timeline)
    bound = bound_of(result, profile)
    limits = dict(zip(result.program.devices, result.costs.memory_limit.tolist(), strict=True))
    return {
        "iteration_s": result.timeline.iteration_s,
        "rows_per_s": rows_per_s(result),
        "bubble_fraction": bubble_fraction(result.timeline),
        "num_actions": result.program.num_actions,
        "num_messages": result.proof.num_messages,
        "traffic_bytes": sum(use.sent_bytes for use in uses),
        "devices": [
            {**use._asdict(), "memory_bytes": limits[use.device] if limits[use.device] < float("inf") else None}
            for use in uses
        ],
        "bound_s": bound.seconds,
        "bound_by": prover(bound).name,
        "bound_parts": bound.parts,
        "gap": gap(bound, result.timeline.iteration_s),
        "next_best": alternative._asdict() if alternative else None,
        "words": explain(result, profile, alternative=alternative, bound=bound),
        "papers": result.costs.plan.cite().splitlines(),
        "notes": list(result.costs.notes),
    }


def bound_of(result: Evaluation, profile: Profile) -> Bound:
    """The proven bound for all plans of this problem."""
    plan = result.costs.plan
    return lower_bound(profile, result.costs.cluster, plan.num_microbatches, plan.micro_batch_size)


def rows_per_s(result: Evaluation) -> float | None:
    """Rows trained a second; None where an iteration takes no time."""
    plan, seconds = result.costs.plan, result.timeline.iteration_s
    return plan.num_microbatches * plan.micro_batch_size / seconds if seconds > 0 else None


def show_evaluation(
    screen: Screen, result: Evaluation, profile: Profile, alternative: Alternative | None = None
) -> None:
    """The plan, the proof, the timeline, what they come to, why, and how much could still be gained."""
    from penstock.report.terminal import TimelinePicture, device_table, waits_table

    if not screen.for_people:
        for note in result.costs.notes:
            screen.warn(note)
        return
    plan = result.costs.plan
    show_stages(screen, plan, profile, result)
    proof = result.proof
    screen.show(
        f"proved: {proof.num_compute:,} jobs and {proof.num_messages:,} messages, every job once, every need met, "
        "no deadlock, memory within limits"
        if not result.costs.over_bytes(proof.peak_bytes).any()
        else f"proved but for memory: {proof.num_compute:,} jobs and {proof.num_messages:,} messages"
    )
    screen.show("", TimelinePicture(result.timeline), "")
    limits = {
        name: None if limit == float("inf") else limit
        for name, limit in zip(result.program.devices, result.costs.memory_limit.tolist(), strict=True)
    }
    screen.show(device_table(result.timeline, limits))
    if screen.verbose:
        screen.show(waits_table(result.timeline))
        path = critical_path(result.timeline)
        names = [result.program.name(action) for action in path]
        screen.show(f"critical path ({len(names)} steps): " + " -> ".join(names))
    rate = rows_per_s(result)
    screen.show(
        f"iteration {show_seconds(result.timeline.iteration_s)}"
        f" for {counted(plan.num_microbatches, 'micro-batch', 'es')} of {counted(plan.micro_batch_size, 'row')}"
        + (f" ({rate:,.1f} rows/s)" if rate else "")
        + f", bubble {show_percent(bubble_fraction(result.timeline))}"
    )
    screen.show("", *explain(result, profile, alternative=alternative, bound=bound_of(result, profile)))
    if screen.verbose:
        screen.show("", "papers behind this plan:", *result.costs.plan.cite().splitlines())
    for note in result.costs.notes:
        screen.warn(note)


def show_stages(screen: Screen, plan: Plan, profile: Profile, result: Evaluation) -> None:
    """Which device runs which units, forward and backward."""
    costs = result.costs
    rows = []
    for number, stage in enumerate(plan.stages):
        places = costs.replicas(number)
        first, last = profile.units[stage.start].name, profile.units[stage.stop - 1].name
        rows.append(
            (
                str(number),
                first if first == last else f"{first} .. {last}",
                shown_group(stage.forward),
                "same" if not stage.has_remote_backward else shown_group(stage.backward),
                show_seconds(float(costs.forward_s[places].max())),
                show_seconds(float(costs.backward_s[places].max())),
                show_bytes(float(costs.parameter_bytes[number])),
                show_bytes(float(costs.output_bytes[number])),
            )
        )
    title = f"{plan.planner} + {plan.schedule}: {profile.name} on {plan.cluster.name}"
    screen.table(
        title,
        ("stage", "units", "forward on", "backward on", "forward", "backward", "parameters", "sends"),
        rows,
        left=4,
    )
