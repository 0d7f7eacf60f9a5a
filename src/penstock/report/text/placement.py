"""Who holds what, in words: which devices run which units forward, and where the backward is elsewhere.

Units in a row that run on the same devices are told together, and of a long row only its ends, so that a plan for a
thousand devices is told as briefly as one for eight.
"""

from collections.abc import Callable, Iterable, Sequence

from penstock.plan import Group, Plan, Stage
from penstock.plan.pricing import SAVED, Costs
from penstock.profile import Profile
from penstock.report.names import shown_name
from penstock.units import show_bytes, show_percent

MOST_TOLD = 8
"""So many parts are all told; of more, the first three and the last."""


def holder_sentences(costs: Costs, profile: Profile) -> list[str]:
    """Who runs the forward of what; which backwards are elsewhere, and what is sent for that; what is recomputed."""
    plan = costs.plan
    found = [_forward_sentence(plan, profile)]
    if any(stage.has_remote_backward for stage in plan.stages):
        found.append(_moved_sentence(costs, profile))
    else:
        found[0] += " Every backward runs where its forward does."
    again = [stage for stage in plan.stages if stage.recompute]
    if len(again) == plan.num_stages:
        found.append("Every stage keeps only its input, and runs its forward again before its backward.")
    elif again:
        runs = shortened([_units(profile, run) for run in _runs(again, lambda stage: stage.recompute)], "runs")
        found.append(f"Only their input is kept of {', '.join(runs)}; the forward runs again before the backward.")
    return found


def _forward_sentence(plan: Plan, profile: Profile) -> str:
    runs = _runs(plan.stages, lambda stage: stage.forward)
    if len(runs) == 1:
        group = plan.stages[0].forward
        if len(group) == 1:
            return f"{shown_name(group[0].device)} runs the whole model."
        return f"The whole model is on each of {shown_group(group)}; every micro-batch's rows are split over them."
    pieces: dict[Group, list[str]] = {}
    for run in runs:
        pieces.setdefault(run[0].forward, []).append(_units(profile, run))
    told = []
    for group, units in pieces.items():
        verb = "runs" if len(group) == 1 else "share"
        told.append(f"{shown_group(group)} {verb} {' and '.join(shortened(units, 'runs of units'))}")
    return f"{'; '.join(shortened(told, 'groups of devices'))}."


def _moved_sentence(costs: Costs, profile: Profile) -> str:
    plan = costs.plan
    places = costs.flows.source_replica[costs.flows.what == SAVED]
    sizes = costs.flows.num_bytes[costs.flows.what == SAVED]
    shipped = dict.fromkeys(range(plan.num_stages), 0.0)
    for place, size in zip(places.tolist(), sizes.tolist(), strict=True):
        shipped[int(costs.replica_stage[place])] += size
    number = {stage.start: index for index, stage in enumerate(plan.stages)}
    moved = [stage for stage in plan.stages if stage.has_remote_backward]
    told = []
    for run in _runs(moved, lambda stage: (stage.forward, stage.backward)):
        size = sum(shipped[number[stage.start]] for stage in run)
        told.append(
            f"the backward of {_units(profile, run)} runs on {shown_group(run[0].backward)}, for which "
            + (f"{show_bytes(size)} are sent there with every micro-batch" if size else "nothing has to be sent")
        )
    text = "; ".join(shortened(told, "such moves"))
    total = f"; {show_bytes(sum(shipped.values()))} with every micro-batch in all" if len(told) > 1 else ""
    return f"{text[0].upper()}{text[1:]}{total}. Every other backward runs where its forward does."


def shortened(parts: Sequence[str], what: str) -> list[str]:
    """All of a few parts; of many the first three, how many are left out, and the last.

    >>> shortened([str(number) for number in range(64)], "devices")
    ['0', '1', '2', '60 more devices', '63']
    """
    if len(parts) <= MOST_TOLD:
        return list(parts)
    return [*parts[:3], f"{len(parts) - 4} more {what}", parts[-1]]


def shown_group(group: Group) -> str:
    """The devices of a group, with shares where they differ.

    >>> from penstock.plan.types import Replica, on
    >>> shown_group(on("d0", "d1")), shown_group((Replica("a", 0.75), Replica("b", 0.25)))
    ('d0, d1', 'a (75.0 %), b (25.0 %)')
    """
    names = [shown_name(replica.device) for replica in group]
    if len(names) > 4:
        return f"{names[0]} .. {names[-1]} ({len(names)} devices)"
    if len({replica.share for replica in group}) == 1:
        return ", ".join(names)
    return ", ".join(f"{name} ({show_percent(replica.share)})" for name, replica in zip(names, group, strict=True))


def _runs(stages: Iterable[Stage], same: Callable[[Stage], object]) -> list[list[Stage]]:
    """Stages that follow each other without a gap and are the same in this."""
    found: list[list[Stage]] = []
    for stage in stages:
        if found and found[-1][-1].stop == stage.start and same(found[-1][-1]) == same(stage):
            found[-1].append(stage)
        else:
            found.append([stage])
    return found


def _units(profile: Profile, run: Sequence[Stage]) -> str:
    first, last = profile.units[run[0].start].name, profile.units[run[-1].stop - 1].name
    return shown_name(first) if first == last else f"{shown_name(first)} .. {shown_name(last)}"
