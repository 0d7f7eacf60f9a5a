"""The words of a report about one timeline: what it is, what limits it, what would help most."""

from typing import NamedTuple

from penstock.plan import Plan
from penstock.planners.studies import Alternative
from penstock.report.analysis import Baseline, Help, help_sentences, what_would_help
from penstock.report.names import shown_name
from penstock.report.subject import Shown
from penstock.report.text import explain_timeline
from penstock.timeline import bubble_fraction, device_uses
from penstock.units import counted, show_bytes, show_percent, show_seconds


class Words(NamedTuple):
    """A first sentence that says the most, and the others."""

    lead: str
    sentences: list[str]
    helps: list[Help]


def words_about(item: Shown, others: list[Baseline]) -> Words:
    """The words. What would help is only known where the plan can be simulated again."""
    sentences = memory_sentences(item)
    sentences += explain_timeline(
        item.timeline,
        item.costs,
        item.profile,
        alternative=_best(item, others),
        bound=None if item.is_measured else item.bound,
    )
    if item.costs is None or item.profile is None or item.is_measured:
        return Words(lead_sentence(item), sentences, [])
    helps = what_would_help(item.timeline, item.costs, item.profile)
    return Words(lead_sentence(item), sentences + help_sentences(helps, item.timeline.iteration_s), helps)


def lead_sentence(item: Shown) -> str:
    """What the plan is, and how long an iteration takes."""
    plan, seconds = item.plan, item.timeline.iteration_s
    rate = plan.num_microbatches * plan.micro_batch_size / seconds if seconds > 0 else 0.0
    took = "was measured to take" if item.is_measured else "takes"
    num_devices = len(device_uses(item.timeline))
    return (
        f"An iteration of {shown_name(plan.profile.name)} on {counted(num_devices, 'device')} of "
        f"{shown_name(plan.cluster.name)} {took} {show_seconds(seconds)}: "
        f"{counted(plan.num_microbatches, 'micro-batch', 'es')} of {counted(plan.micro_batch_size, 'row')}"
        + (f", {rate:,.1f} rows/s" if rate else "")
        + f"; devices wait {show_percent(bubble_fraction(item.timeline))} of it. {_origin_sentence(plan)}"
    )


def _origin_sentence(plan: Plan) -> str:
    """Who made the plan, and who its order."""
    if plan.num_stages == 1:
        return f"The planner {plan.planner} left the model in one stage; the schedule {plan.schedule} orders its jobs."
    return (
        f"The planner {plan.planner} cut the model into {plan.num_stages} stages; the schedule {plan.schedule} "
        "orders their jobs."
    )


def memory_sentences(item: Shown) -> list[str]:
    """Which devices are over their limit, if any are. Of a run, too, memory is what was predicted."""
    if item.costs is None:
        return []
    limit = {device.name: device.memory_bytes for device in item.costs.cluster.devices}
    found = []
    for use in device_uses(item.timeline):
        most = limit[use.device]
        if most is not None and use.peak_bytes > most + 0.5:
            needs = "was predicted to need" if item.is_measured else "needs"
            end = "." if item.is_measured else ": this plan does not fit."
            found.append(
                f"{shown_name(use.device)} {needs} {show_bytes(use.peak_bytes)} and has {show_bytes(most)}{end}"
            )
    return found[:3]


def _best(item: Shown, others: list[Baseline]) -> Alternative | None:
    """The fastest other plan that fits."""
    fitting = [other for other in others if other.outcome.fits and other.planner != item.plan.planner]
    if not fitting or item.is_measured:
        return None
    best = min(fitting, key=lambda other: other.outcome.iteration_s)
    return Alternative(f"{best.planner} + {best.schedule}", best.outcome.iteration_s)
