"""A plan explained in a few sentences: who holds what, where the time goes, what limits it, what else there is.

Every figure comes from the plan's own timeline, costs and bound.
"""

from penstock.plan.pricing import Costs
from penstock.planners.bounds import Bound, BoundPart
from penstock.planners.studies import Alternative
from penstock.profile import Profile
from penstock.program import Kind
from penstock.report.analysis import TimeUse, bottleneck_sentences, time_use
from penstock.report.text.placement import holder_sentences
from penstock.simulate import Evaluation
from penstock.timeline import Timeline
from penstock.units import show_percent, show_seconds

MOST_REASONS = 3
LEAST_SHARE = 0.0005
"""What would show as 0.0 % is left out."""
SAME = 0.0005
"""Two plans whose times differ by less are said to take as long."""

_JOBS = {
    Kind.F: "forward",
    Kind.R: "recomputation",
    Kind.B: "backward",
    Kind.I: "input gradients",
    Kind.W: "weight gradients",
    Kind.STEP: "optimizer steps",
}
_AWAITED = {
    Kind.SEND_F: "for activations",
    Kind.SEND_B: "for gradients",
    Kind.SEND_S: "for saved tensors",
    Kind.SEND_P: "for parameters",
    Kind.REDUCE_GRAD: "for all-reduces of a group's gradients",
    Kind.REDUCE_TIE: "for all-reduces of shared parameters' gradients",
    None: "with nothing to wait for in the program",
}


def explain(
    evaluation: Evaluation, profile: Profile, *, alternative: Alternative | None = None, bound: Bound | None = None
) -> list[str]:
    """The plan in sentences; with what the next best plan takes, and what no plan can beat, if these are given."""
    return explain_timeline(evaluation.timeline, evaluation.costs, profile, alternative=alternative, bound=bound)


def explain_timeline(
    timeline: Timeline,
    costs: Costs | None,
    profile: Profile | None,
    *,
    alternative: Alternative | None = None,
    bound: Bound | None = None,
) -> list[str]:
    """The same from a timeline, simulated or measured; without costs and profile not who holds what."""
    found = holder_sentences(costs, profile) if costs is not None and profile is not None else []
    found += _time_sentences(time_use(timeline))
    found += bottleneck_sentences(timeline)
    if alternative is not None:
        found.append(alternative_in_words(alternative, timeline.iteration_s))
    if bound is not None:
        found.append(bound_in_words(bound, timeline.iteration_s))
    return found


def prover(bound: Bound) -> BoundPart:
    """The part that proves the bound: the largest."""
    return max(bound.parts, key=lambda part: part.seconds)


def gap(bound: Bound, iteration_s: float) -> float | None:
    """By which part a plan is above the bound; None where the bound is nothing."""
    return iteration_s / bound.seconds - 1 if bound.seconds > 0 else None


def bound_in_words(bound: Bound, iteration_s: float) -> str:
    """What no plan can beat, what proves it, and how far this one is above."""
    proof, above = prover(bound), gap(bound, iteration_s)
    told = f"this one is {show_percent(above)} above" if above is not None else "so the gap is not known"
    return (
        f"What could be gained: no plan can be faster than {show_seconds(bound.seconds)} "
        f"(proved by the {proof.name} bound: {proof.why}); {told}."
    )


def alternative_in_words(alternative: Alternative, iteration_s: float) -> str:
    """What the next best plan would have cost, honest also where it would have cost less."""
    text = (
        f"Of the other planners, each with its own schedule (penstock compare tries all), {alternative.name} is best: "
        f"{show_seconds(alternative.seconds)}"
    )
    if not alternative.is_allowed:
        text = f"{text} (but it uses what was ruled out here)"
    if iteration_s <= 0:
        return f"{text}."
    change = alternative.seconds / iteration_s - 1
    if abs(change) < SAME:
        return f"{text}, just as long."
    return f"{text}, {show_percent(abs(change))} {'longer' if change > 0 else 'less'} than this one."


def _time_sentences(use: TimeUse) -> list[str]:
    if use.total_s <= 0:
        return ["Nothing here takes any time."]
    shares = [(name, use.work_s.get(kind, 0.0) / use.total_s) for kind, name in _JOBS.items()]
    shares.append(("waiting", use.waiting_s / use.total_s))
    told = [f"{show_percent(share)} {name}" for name, share in shares if share >= LEAST_SHARE]
    found = [f"Of the devices' time, {', '.join(told)}."]
    reasons = [(wait.seconds, _AWAITED[wait.kind], wait.transfer_s) for wait in use.waits]
    reasons.append((use.after_s, "for the others, their own work done", 0.0))
    reasons = sorted((item for item in reasons if item[0] >= LEAST_SHARE * use.total_s), key=lambda item: -item[0])
    if reasons:
        parts = []
        for seconds, text, transfer_s in reasons[:MOST_REASONS]:
            moving = transfer_s / use.total_s
            inside = f" (transfers themselves {show_percent(moving)})" if moving >= LEAST_SHARE else ""
            parts.append(f"{show_percent(seconds / use.total_s)} {text}{inside}")
        found.append(f"Devices wait most: {', '.join(parts)}.")
    return found
