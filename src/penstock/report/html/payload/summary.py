"""The summary of one timeline: the plan, its bottleneck, and the most effective changes."""

from typing import NamedTuple

from penstock.plan import Plan
from penstock.planners.studies import Alternative
from penstock.printable_text import escape_text
from penstock.report.analysis import (
    Baseline,
    Improvement,
    TightMemory,
    find_improvements,
    find_tight_memory,
    improvement_sentences,
)
from penstock.report.subject import ReportSubject
from penstock.report.text import explain_timeline
from penstock.timeline import bubble_fraction, device_uses, rows_per_second
from penstock.units import show_bytes, show_count, show_percent, show_seconds


class SummaryText(NamedTuple):
    """The most important sentence, all others, the simulated changes of the cluster, and what fills full devices."""

    lead: str
    sentences: list[str]
    improvements: list[Improvement]
    tight: TightMemory | None = None


def summarise_subject(item: ReportSubject, others: list[Baseline]) -> SummaryText:
    """Summarise a timeline. Improvements need the costs and the profile of a simulated plan."""
    sentences = memory_sentences(item)
    tight = None
    if item.costs is not None and item.profile is not None and not item.is_measured:
        tight = find_tight_memory(item.timeline, item.costs, item.profile)
    sentences += explain_timeline(
        item.timeline,
        item.costs,
        item.profile,
        alternative=_best(item, others),
        bound=None if item.is_measured else item.bound,
        interval=item.interval,
        tight=tight,
    )
    if item.costs is None or item.profile is None or item.is_measured:
        return SummaryText(lead_sentence(item), sentences, [])
    improvements = find_improvements(item.timeline, item.costs, item.profile)
    sentences += improvement_sentences(improvements, item.timeline.iteration_s)
    return SummaryText(lead_sentence(item), sentences, improvements, tight)


def lead_sentence(item: ReportSubject) -> str:
    """The model, the cluster, the iteration time, and the origin of the plan."""
    plan, seconds = item.plan, item.timeline.iteration_s
    rate = rows_per_second(item.timeline)
    took = "took" if item.is_measured else "takes"
    num_devices = len(device_uses(item.timeline))
    return (
        f"An iteration of {escape_text(plan.profile.name)} on {show_count(num_devices, 'device')} of "
        f"{escape_text(plan.cluster.name)} {took} {show_seconds(seconds)}: "
        f"{show_count(plan.num_microbatches, 'micro-batch', 'es')} of {show_count(plan.micro_batch_size, 'row')}"
        + (f", {rate:,.1f} rows/s" if rate else "")
        + f"; devices are idle for {show_percent(bubble_fraction(item.timeline))} of it. {_origin_sentence(plan)}"
    )


def _origin_sentence(plan: Plan) -> str:
    """The planner and the schedule of a plan."""
    return f"Planner {plan.planner}: {show_count(plan.num_stages, 'stage')}. Schedule: {plan.schedule}."


def memory_sentences(item: ReportSubject) -> list[str]:
    """The devices that exceed their memory limit, at most three. The memory of a measured run is predicted too."""
    if item.costs is None:
        return []
    limit = {device.name: device.memory_bytes for device in item.costs.cluster.devices}
    sentences = []
    for use in device_uses(item.timeline):
        most = limit[use.device]
        if most is not None and use.peak_bytes > most + 0.5:
            needs = "was predicted to need" if item.is_measured else "needs"
            end = "." if item.is_measured else ": this plan does not fit."
            sentences.append(
                f"{escape_text(use.device)} {needs} {show_bytes(use.peak_bytes)} and has {show_bytes(most)}{end}"
            )
    return sentences[:3]


def _best(item: ReportSubject, others: list[Baseline]) -> Alternative | None:
    """The fastest baseline that fits into memory."""
    fitting = [other for other in others if other.outcome.fits and other.planner != item.plan.planner]
    if not fitting or item.is_measured:
        return None
    best = min(fitting, key=lambda other: other.outcome.iteration_s)
    return Alternative(f"{best.planner} + {best.schedule}", best.outcome.iteration_s)
