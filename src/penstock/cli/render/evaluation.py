"""Showing and writing an evaluated plan, for plan and simulate."""

from collections.abc import Sequence
from typing import Any

from penstock.cli.console import Console
from penstock.plan import Plan
from penstock.planners import Declined
from penstock.planners.bounds import Bound, binding_part, gap_to_bound, lower_bound
from penstock.planners.studies import Alternative
from penstock.profile import Profile
from penstock.program import encode_program
from penstock.report.analysis import TightMemory, find_tight_memory
from penstock.report.text import explain, format_group
from penstock.simulate import Evaluation, predict
from penstock.timeline import bubble_fraction, critical_path, device_uses, encode_timeline
from penstock.units import show_bytes, show_count, show_percent, show_range, show_seconds


def contents_of(
    result: Evaluation, *, program: str | None = None, timeline: str | None = None, trace: str | None = None
) -> dict[str, bytes]:
    """The contents of the output files."""
    contents: dict[str, bytes] = {}
    if program:
        contents[program] = encode_program(result.program)
    if timeline:
        contents[timeline] = encode_timeline(result.timeline)
    if trace:
        from penstock.report.trace import chrome_trace

        contents[trace] = chrome_trace(result.timeline)
    return contents


def evaluation_data(
    result: Evaluation,
    profile: Profile,
    bound: Bound,
    alternative: Alternative | None = None,
    *,
    declined: Sequence[Declined] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """The figures and the explanation of an evaluation, as data."""
    interval = predict(result.proof, profile, seed=seed).interval
    tight = find_tight_memory(result.timeline, result.costs, profile)
    uses = device_uses(result.timeline)
    limits = dict(zip(result.program.devices, result.costs.memory_limit.tolist(), strict=True))
    return {
        "iteration_s": result.timeline.iteration_s,
        "interval": interval,
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
        "bound_by": binding_part(bound).name,
        "bound_parts": bound.parts,
        "gap": gap_to_bound(bound, result.timeline.iteration_s),
        "next_best": alternative._asdict() if alternative else None,
        "tight_memory": _tight_data(tight),
        "declined": [{**item._asdict(), "gain": item.gain} for item in declined],
        "words": explain(
            result, profile, alternative=alternative, bound=bound, interval=interval, declined=declined, tight=tight
        ),
        "papers": result.costs.plan.cite().splitlines(),
        "notes": list(result.costs.notes),
    }


def _tight_data(tight: TightMemory | None) -> dict[str, Any] | None:
    """The devices that are nearly full, as data."""
    if tight is None:
        return None
    devices = [{**item._asdict(), "parts": dict(item.parts)} for item in tight.devices]
    return {"devices": devices, "with_1_GB_more_s": tight.more_s}


def bound_of(result: Evaluation, profile: Profile) -> Bound:
    """The lower bound for all plans of this problem."""
    plan = result.costs.plan
    return lower_bound(profile, result.costs.cluster, plan.num_microbatches, plan.micro_batch_size)


def rows_per_s(result: Evaluation) -> float | None:
    """Rows trained per second; None if an iteration takes no time."""
    plan, seconds = result.costs.plan, result.timeline.iteration_s
    return plan.num_microbatches * plan.micro_batch_size / seconds if seconds > 0 else None


def show_evaluation(
    console: Console,
    result: Evaluation,
    profile: Profile,
    bound: Bound | None,
    alternative: Alternative | None = None,
    *,
    declined: Sequence[Declined] = (),
    seed: int = 0,
) -> None:
    """Show the plan, the proof, the timeline, the iteration time, its causes, and the gap to the bound."""
    from penstock.report.terminal import TimelinePicture, device_table, waits_table

    if not console.shows_text:
        for note in result.costs.notes:
            console.warn(note)
        return
    assert bound is not None, "text output includes the bound"
    plan = result.costs.plan
    show_stages(console, plan, profile, result)
    proof = result.proof
    console.show(
        f"proved: {proof.num_compute:,} compute actions and {proof.num_messages:,} messages, each action once, "
        "dependencies met, no deadlock, memory within limits"
        if not result.costs.over_bytes(proof.peak_bytes).any()
        else f"proved except for memory: {proof.num_compute:,} compute actions and {proof.num_messages:,} messages"
    )
    console.show("", TimelinePicture(result.timeline), "")
    limits = {
        name: None if limit == float("inf") else limit
        for name, limit in zip(result.program.devices, result.costs.memory_limit.tolist(), strict=True)
    }
    console.show(device_table(result.timeline, limits))
    if console.verbose:
        console.show(waits_table(result.timeline))
        path = critical_path(result.timeline)
        names = [result.program.name(action) for action in path]
        console.show(f"critical path ({len(names)} steps): " + " -> ".join(names))
    rate = rows_per_s(result)
    interval = predict(result.proof, profile, seed=seed).interval
    tight = find_tight_memory(result.timeline, result.costs, profile)
    console.show(
        f"iteration {show_range(result.timeline.iteration_s, interval.low_s, interval.high_s)}"
        f" for {show_count(plan.num_microbatches, 'micro-batch', 'es')} of {show_count(plan.micro_batch_size, 'row')}"
        + (f" ({rate:,.1f} rows/s)" if rate else "")
        + f", bubble {show_percent(bubble_fraction(result.timeline))}"
    )
    words = explain(
        result, profile, alternative=alternative, bound=bound, interval=interval, declined=declined, tight=tight
    )
    console.show("", *words)
    if console.verbose:
        console.show("", "papers:", *result.costs.plan.cite().splitlines())
    for note in result.costs.notes:
        console.warn(note)


def show_stages(console: Console, plan: Plan, profile: Profile, result: Evaluation) -> None:
    """Show which device runs which layers, forward and backward."""
    costs = result.costs
    rows = []
    for number, stage in enumerate(plan.stages):
        replicas = costs.replicas(number)
        first, last = profile.units[stage.start].name, profile.units[stage.stop - 1].name
        rows.append(
            (
                str(number),
                first if first == last else f"{first} .. {last}",
                format_group(stage.forward),
                "same" if not stage.has_remote_backward else format_group(stage.backward),
                show_seconds(float(costs.forward_s[replicas].max())),
                show_seconds(float(costs.backward_s[replicas].max())),
                show_bytes(float(costs.parameter_bytes[number])),
                show_bytes(float(costs.output_bytes[number])),
            )
        )
    title = f"{plan.planner} + {plan.schedule}: {profile.name} on {plan.cluster.name}"
    console.table(
        title,
        ("stage", "layers", "forward on", "backward on", "forward", "backward", "parameters", "sends"),
        rows,
        left=4,
    )
