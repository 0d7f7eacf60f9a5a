"""A plan explained in a few sentences: placement, use of the devices' time, bottleneck, alternative and lower bound.

Every figure comes from the plan's own timeline, costs and bound.
"""

from collections.abc import Sequence

from penstock.plan.pricing import Costs
from penstock.planners import Declined
from penstock.planners.bounds import Bound, binding_part, gap_to_bound
from penstock.planners.studies import Alternative
from penstock.profile import Profile
from penstock.program import Kind
from penstock.report.analysis import (
    TightMemory,
    TimeUse,
    bottleneck_sentences,
    tight_memory_sentences,
    time_use,
)
from penstock.report.text.placement import placement_sentences
from penstock.report.text.uncertainty import declined_sentence, interval_sentence
from penstock.simulate import Evaluation, Interval
from penstock.timeline import Timeline
from penstock.units import show_percent, show_seconds

MAX_REASONS = 3
MIN_SHARE = 0.0005
"""Smaller shares would print as 0.0 % and are left out."""
EQUAL_TIME = 0.0005
"""Plans whose times differ by a smaller ratio take the same time."""

_COMPUTE = {
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
    Kind.GATHER_P: "for all-gathers of a group's parameters",
    None: "without a cause in the program",
}


def explain(
    evaluation: Evaluation,
    profile: Profile,
    *,
    alternative: Alternative | None = None,
    bound: Bound | None = None,
    interval: Interval | None = None,
    declined: Sequence[Declined] = (),
    tight: TightMemory | None = None,
) -> list[str]:
    """Explain a simulated plan.

    Args:
        evaluation: The simulated plan.
        profile: The profile of the model.
        alternative: The best plan of the other planners.
        bound: The lower bound of the problem.
        interval: The predicted interval.
        declined: Faster plans by simulated time that the planner did not choose.
        tight: The devices that are nearly full.

    Returns:
        Sentences, each of them a string.
    """
    return explain_timeline(
        evaluation.timeline,
        evaluation.costs,
        profile,
        alternative=alternative,
        bound=bound,
        interval=interval,
        declined=declined,
        tight=tight,
    )


def explain_timeline(
    timeline: Timeline,
    costs: Costs | None,
    profile: Profile | None,
    *,
    alternative: Alternative | None = None,
    bound: Bound | None = None,
    interval: Interval | None = None,
    declined: Sequence[Declined] = (),
    tight: TightMemory | None = None,
) -> list[str]:
    """Explain a simulated or measured timeline.

    Args:
        timeline: The timeline.
        costs: The priced plan. Without costs and profile the placement is left out.
        profile: The profile of the model.
        alternative: The best plan of the other planners.
        bound: The lower bound of the problem.
        interval: The predicted interval.
        declined: Faster plans by simulated time that the planner did not choose.
        tight: The devices that are nearly full.

    Returns:
        Sentences, each of them a string.
    """
    sentences = placement_sentences(costs, profile) if costs is not None and profile is not None else []
    sentences += _time_sentences(time_use(timeline))
    sentences += bottleneck_sentences(timeline)
    if tight is not None:
        sentences += tight_memory_sentences(tight, timeline.iteration_s)
    if interval is not None:
        sentences.append(interval_sentence(interval))
    sentences += [declined_sentence(item) for item in declined]
    if alternative is not None:
        sentences.append(alternative_sentence(alternative, timeline.iteration_s))
    if bound is not None:
        sentences.append(bound_sentence(bound, timeline.iteration_s))
    return sentences


def bound_sentence(bound: Bound, iteration_s: float) -> str:
    """The lower bound, its proof, and the gap of this plan."""
    part, gap = binding_part(bound), gap_to_bound(bound, iteration_s)
    distance = f"this plan is {show_percent(gap)} above" if gap is not None else "the gap is not defined"
    return (
        f"Lower bound: no plan can be faster than {show_seconds(bound.seconds)} "
        f"({part.name} bound: {part.why}); {distance}."
    )


def alternative_sentence(alternative: Alternative, iteration_s: float) -> str:
    """The best plan of the other planners, also where it is faster than this plan."""
    text = (
        f"Best plan of the other planners, each with its own schedule (penstock compare runs all): {alternative.name}, "
        f"{show_seconds(alternative.seconds)}"
    )
    if not alternative.is_allowed:
        text = f"{text} (uses options disabled for this plan)"
    if iteration_s <= 0:
        return f"{text}."
    change = alternative.seconds / iteration_s - 1
    if abs(change) < EQUAL_TIME:
        return f"{text}, the same time."
    return f"{text}, {show_percent(abs(change))} {'longer' if change > 0 else 'shorter'} than this plan."


def _time_sentences(use: TimeUse) -> list[str]:
    if use.total_s <= 0:
        return ["No action takes any time."]
    shares = [(name, use.work_s.get(kind, 0.0) / use.total_s) for kind, name in _COMPUTE.items()]
    shares.append(("idle", use.waiting_s / use.total_s))
    parts = [f"{show_percent(share)} {name}" for name, share in shares if share >= MIN_SHARE]
    sentences = [f"Use of the devices' time: {', '.join(parts)}."]
    reasons = [(wait.seconds, _AWAITED[wait.kind], wait.transfer_s) for wait in use.waits]
    reasons.append((use.after_s, "idle after finishing, waiting for the iteration to end", 0.0))
    reasons = sorted((item for item in reasons if item[0] >= MIN_SHARE * use.total_s), key=lambda item: -item[0])
    if reasons:
        parts = []
        for seconds, text, transfer_s in reasons[:MAX_REASONS]:
            moving = transfer_s / use.total_s
            inside = f" (of which transfers {show_percent(moving)})" if moving >= MIN_SHARE else ""
            parts.append(f"{show_percent(seconds / use.total_s)} {text}{inside}")
        sentences.append(f"Longest waits: {'; '.join(parts)}.")
    return sentences
