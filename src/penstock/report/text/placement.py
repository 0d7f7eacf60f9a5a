"""Sentences about the placement: which devices run which layers, remote backwards, and recomputation.

Consecutive layers on the same devices are described together, and long lists are elided in the middle, so that the text
for a thousand devices is as short as for eight.
"""

from collections.abc import Callable, Iterable, Sequence

from penstock.plan import Group, Plan, Stage
from penstock.plan.pricing import SAVED, Costs
from penstock.printable_text import escape_text
from penstock.profile import Profile
from penstock.units import show_bytes, show_percent

MAX_PARTS = 8
"""Longer lists show the first three parts and the last one."""


def placement_sentences(costs: Costs, profile: Profile) -> list[str]:
    """Describe the devices of every forward, remote backwards, their transfers, recomputation, sharded optimizers."""
    plan = costs.plan
    sentences = [_forward_sentence(plan, profile)]
    if any(stage.has_remote_backward for stage in plan.stages):
        sentences.append(_remote_backward_sentence(costs, profile))
    else:
        sentences[0] += " Every backward runs on the device of its forward."
    recomputed = [stage for stage in plan.stages if stage.recompute]
    if len(recomputed) == plan.num_stages:
        sentences.append("Every stage keeps only its input and recomputes its forward before its backward.")
    elif recomputed:
        runs = elide([_layers(profile, run) for run in _runs(recomputed, lambda stage: stage.recompute)], "runs")
        sentences.append(f"Recomputed from their input before the backward: {', '.join(runs)}.")
    sharded = [stage for stage in plan.stages if stage.sharded_optimizer]
    if sharded:
        runs = elide([_layers(profile, run) for run in _runs(sharded, lambda stage: stage.sharded_optimizer)], "runs")
        sentences.append(f"The replicas share the optimizer state of {', '.join(runs)}.")
    return sentences


def _forward_sentence(plan: Plan, profile: Profile) -> str:
    runs = _runs(plan.stages, lambda stage: stage.forward)
    if len(runs) == 1:
        group = plan.stages[0].forward
        if len(group) == 1:
            return f"{escape_text(group[0].device)} runs the whole model."
        return f"Each of {format_group(group)} runs the whole model on its share of every micro-batch."
    layers_of: dict[Group, list[str]] = {}
    for run in runs:
        layers_of.setdefault(run[0].forward, []).append(_layers(profile, run))
    parts = []
    for group, layers in layers_of.items():
        verb = "runs" if len(group) == 1 else "share"
        parts.append(f"{format_group(group)} {verb} {' and '.join(elide(layers, 'runs of layers'))}")
    return f"{'; '.join(elide(parts, 'groups of devices'))}."


def _remote_backward_sentence(costs: Costs, profile: Profile) -> str:
    plan = costs.plan
    replicas = costs.flows.source_replica[costs.flows.what == SAVED]
    sizes = costs.flows.num_bytes[costs.flows.what == SAVED]
    sent_bytes = dict.fromkeys(range(plan.num_stages), 0.0)
    for replica, size in zip(replicas.tolist(), sizes.tolist(), strict=True):
        sent_bytes[int(costs.replica_stage[replica])] += size
    number = {stage.start: index for index, stage in enumerate(plan.stages)}
    remote = [stage for stage in plan.stages if stage.has_remote_backward]
    parts = []
    for run in _runs(remote, lambda stage: (stage.forward, stage.backward)):
        size = sum(sent_bytes[number[stage.start]] for stage in run)
        parts.append(
            f"the backward of {_layers(profile, run)} runs on {format_group(run[0].backward)}"
            + (
                f", which receives {show_bytes(size)} of saved tensors per micro-batch"
                if size
                else " without any transfer"
            )
        )
    text = "; ".join(elide(parts, "remote backwards"))
    total = f"; {show_bytes(sum(sent_bytes.values()))} per micro-batch in total" if len(parts) > 1 else ""
    return f"{text[0].upper()}{text[1:]}{total}. Every other backward runs on the device of its forward."


def elide(parts: Sequence[str], what: str) -> list[str]:
    """Shorten a long list to its first three parts, the number of those left out, and its last part.

    >>> elide([str(number) for number in range(64)], "devices")
    ['0', '1', '2', '60 more devices', '63']
    """
    if len(parts) <= MAX_PARTS:
        return list(parts)
    return [*parts[:3], f"{len(parts) - 4} more {what}", parts[-1]]


def format_group(group: Group) -> str:
    """The devices of a group, with their shares where these differ.

    Args:
        group: The forward or backward group of a stage.

    Returns:
        The names, or the first and the last of more than four.

    >>> from penstock.plan.types import Replica, on
    >>> format_group(on("d0", "d1")), format_group((Replica("a", 0.75), Replica("b", 0.25)))
    ('d0, d1', 'a (75.0 %), b (25.0 %)')
    """
    names = [escape_text(replica.device) for replica in group]
    if len(names) > 4:
        return f"{names[0]} .. {names[-1]} ({len(names)} devices)"
    if len({replica.share for replica in group}) == 1:
        return ", ".join(names)
    return ", ".join(f"{name} ({show_percent(replica.share)})" for name, replica in zip(names, group, strict=True))


def _runs(stages: Iterable[Stage], same: Callable[[Stage], object]) -> list[list[Stage]]:
    """Group adjacent stages for which `same` has the same value."""
    runs: list[list[Stage]] = []
    for stage in stages:
        if runs and runs[-1][-1].stop == stage.start and same(runs[-1][-1]) == same(stage):
            runs[-1].append(stage)
        else:
            runs.append([stage])
    return runs


def _layers(profile: Profile, run: Sequence[Stage]) -> str:
    first, last = profile.units[run[0].start].name, profile.units[run[-1].stop - 1].name
    return escape_text(first) if first == last else f"{escape_text(first)} .. {escape_text(last)}"
