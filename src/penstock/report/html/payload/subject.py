"""The data of one timeline of a report."""

from typing import Any

from penstock.plan import Group
from penstock.planners.bounds import binding_part, gap_to_bound
from penstock.report.analysis import TightMemory, phases
from penstock.report.html.payload.arrays import timeline_arrays
from penstock.report.html.payload.catalog import Catalog
from penstock.report.html.payload.cluster import rings, ties
from penstock.report.html.payload.summary import SummaryText
from penstock.report.subject import ReportSubject
from penstock.timeline import bubble_fraction, device_uses, rows_per_second


def subject_data(item: ReportSubject, summary: SummaryText, catalog: Catalog) -> dict[str, Any]:
    """The data of one timeline, and the indices of the parts that it shares with others."""
    timeline, plan = item.timeline, item.plan
    arrays = timeline_arrays(timeline, ties(item))
    limits: dict[str, int | None] = {}
    static_bytes: dict[str, float] = {}
    if item.costs is not None:
        limits = {device.name: device.memory_bytes for device in item.costs.cluster.devices}
        static_bytes = dict(zip(limits, item.costs.static_bytes.tolist(), strict=True))
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
        "microBatchSize": plan.micro_batch_size,
        "unit": arrays.unit_s,
        "iteration": timeline.iteration_s,
        "tight": _tight(summary.tight),
        "interval": None if item.interval is None else [item.interval.low_s, item.interval.high_s],
        "steady": phase.steady_s,
        "drain": phase.drain_s,
        "figures": _figures(item),
        "lead": summary.lead,
        "sentences": summary.sentences,
        "improvements": [improvement._asdict() for improvement in summary.improvements],
        "devices": [{"name": name, "limit": limits.get(name), "static": static_bytes.get(name)} for name in names],
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
        "layers": catalog.model(item),
        "rings": rings(item),
        "cluster": catalog.cluster(item),
        "problem": catalog.problem(item),
        "task": catalog.task(item),
        "begins": arrays.begins,
        "gapBegins": arrays.gap_begins,
        "arrays": arrays.layout,
        "data": arrays.text,
    }


def _tight(tight: TightMemory | None) -> dict[str, Any] | None:
    """What fills the devices that are nearly full, and the iteration with one GB more on each."""
    if tight is None:
        return None
    devices = [
        {"name": found.device, "limit": found.limit_bytes, "action": found.action, "parts": found.parts}
        for found in tight.devices
    ]
    return {"devices": devices, "moreSeconds": tight.more_s}


def _group(group: Group) -> list[tuple[str, float]]:
    return [(replica.device, round(replica.share, 6)) for replica in group]


def _figures(item: ReportSubject) -> dict[str, Any]:
    uses = device_uses(item.timeline)
    excess_bytes = None
    if item.costs is not None:
        limit = {device.name: device.memory_bytes for device in item.costs.cluster.devices}
        known = [(use.peak_bytes, limit[use.device]) for use in uses]
        excess_bytes = max((peak - most for peak, most in known if most is not None), default=0.0)
    return {
        "rowsPerSecond": rows_per_second(item.timeline),
        "bubble": bubble_fraction(item.timeline),
        "peak": max((use.peak_bytes for use in uses), default=0.0),
        "traffic": sum(use.sent_bytes for use in uses),
        "fits": None if excess_bytes is None else excess_bytes <= 0.5,
        "bound": item.bound.seconds if item.bound else None,
        "boundBy": binding_part(item.bound).name if item.bound else None,
        "gap": gap_to_bound(item.bound, item.timeline.iteration_s) if item.bound and not item.is_measured else None,
    }
