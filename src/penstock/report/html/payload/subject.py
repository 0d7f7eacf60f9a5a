"""One timeline of a report, as its page gets it."""

from typing import Any

from penstock.plan import Group
from penstock.report.analysis import phases
from penstock.report.html.payload.arrays import timeline_arrays
from penstock.report.html.payload.cluster import rings, ties
from penstock.report.html.payload.shared import Shared
from penstock.report.html.payload.summary import Words
from penstock.report.subject import Shown
from penstock.report.text import gap, prover
from penstock.timeline import bubble_fraction, device_uses


def subject_data(item: Shown, words: Words, shared: Shared) -> dict[str, Any]:
    """Everything that belongs to one timeline alone, and the numbers of what it shares."""
    timeline, plan = item.timeline, item.plan
    arrays = timeline_arrays(timeline)
    limits: dict[str, int | None] = {}
    held: dict[str, float] = {}
    if item.costs is not None:
        limits = {device.name: device.memory_bytes for device in item.costs.cluster.devices}
        held = dict(zip(limits, item.costs.static_bytes.tolist(), strict=True))
    phase = phases(timeline)
    names = [timeline.program.devices[device] for device in arrays.devices]
    return {
        "name": item.name,
        "origin": timeline.origin,
        "planner": plan.planner,
        "schedule": plan.schedule,
        "model": plan.profile.name,
        "clusterName": plan.cluster.name,
        "numMicrobatches": plan.num_microbatches,
        "micro_batch_size": plan.micro_batch_size,
        "unit": arrays.unit_s,
        "iteration": timeline.iteration_s,
        "steady": phase.steady_s,
        "drain": phase.drain_s,
        "figures": _figures(item),
        "lead": words.lead,
        "words": words.sentences,
        "helps": [found._asdict() for found in words.helps],
        "devices": [{"name": name, "limit": limits.get(name), "held": held.get(name)} for name in names],
        "stages": [
            {
                "start": stage.start,
                "stop": stage.stop,
                "forward": _group(stage.forward),
                "backward": _group(stage.backward),
                "recompute": stage.recompute,
            }
            for stage in plan.stages
        ],
        "units": shared.model(item),
        "rings": rings(item),
        "ties": ties(item),
        "cluster": shared.cluster(item),
        "problem": shared.problem(item),
        "task": shared.task(item),
        "begins": arrays.begins,
        "gapBegins": arrays.gap_begins,
        "last": arrays.last,
        "arrays": arrays.where,
        "data": arrays.text,
    }


def _group(group: Group) -> list[tuple[str, float]]:
    return [(replica.device, round(replica.share, 6)) for replica in group]


def _figures(item: Shown) -> dict[str, Any]:
    uses = device_uses(item.timeline)
    seconds, plan = item.timeline.iteration_s, item.plan
    over = None
    if item.costs is not None:
        limit = {device.name: device.memory_bytes for device in item.costs.cluster.devices}
        known = [(use.peak_bytes, limit[use.device]) for use in uses]
        over = max((peak - most for peak, most in known if most is not None), default=0.0)
    return {
        "rowsPerSecond": plan.num_microbatches * plan.micro_batch_size / seconds if seconds > 0 else None,
        "bubble": bubble_fraction(item.timeline),
        "peak": max((use.peak_bytes for use in uses), default=0.0),
        "traffic": sum(use.sent_bytes for use in uses),
        "fits": None if over is None else over <= 0.5,
        "bound": item.bound.seconds if item.bound else None,
        "boundBy": prover(item.bound).name if item.bound else None,
        "gap": gap(item.bound, seconds) if item.bound and not item.is_measured else None,
    }
