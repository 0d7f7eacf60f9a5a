"""The parts of an iteration: along its critical path, and of its devices' time."""

from itertools import pairwise

import msgspec

from penstock.program import Kind
from penstock.simulate import Evaluation
from penstock.timeline import critical_path, device_uses

_GROUPS = {
    "forward": (Kind.F,),
    "recomputation": (Kind.R,),
    "backward": (Kind.I, Kind.W, Kind.B),
    "steps": (Kind.STEP,),
    "activations and gradients in transit": (Kind.SEND_F, Kind.SEND_B, Kind.RECV_F, Kind.RECV_B),
    "saved tensors in transit": (Kind.SEND_S, Kind.RECV_S),
    "parameters going back": (Kind.SEND_P, Kind.RECV_P),
    "all-reduces": (Kind.REDUCE_GRAD, Kind.REDUCE_TIE),
}


class IterationParts(msgspec.Struct, frozen=True):
    """Parts of an iteration, as fractions of its time."""

    path: dict[str, float]
    """By group of actions along the critical path; they add up to 1."""
    busy: float
    """The fraction of a device's time, on average over all devices of the cluster, in which it computes;"""
    before: float
    """in which it waits for its first action;"""
    between: float
    """in which it waits between two actions;"""
    after: float
    """in which it has finished and the iteration has not;"""
    unused: float
    """and the fraction of devices that the plan does not use."""
    num_stages: int
    num_replicated: int
    num_remote_backward: int
    num_recomputed: int


def iteration_parts(evaluation: Evaluation) -> IterationParts:
    """The parts of a simulated plan."""
    timeline, plan = evaluation.timeline, evaluation.costs.plan
    whole = timeline.iteration_s
    path = critical_path(timeline)
    ends = [*(float(timeline.start_s[after]) for _, after in pairwise(path)), whole]
    spent = dict.fromkeys(_GROUPS, 0.0)
    for action, end in zip(path, ends, strict=True):
        kind = Kind(int(timeline.program.kind[action]))
        name = next(name for name, kinds in _GROUPS.items() if kind in kinds)
        spent[name] += (end - float(timeline.start_s[action])) / whole
    uses = device_uses(timeline)
    every = evaluation.costs.cluster.num_devices * whole
    return IterationParts(
        path={name: part for name, part in spent.items() if part > 0},
        busy=sum(use.busy_s for use in uses) / every,
        before=sum(use.first_s for use in uses) / every,
        between=sum(use.inner_bubble_s for use in uses) / every,
        after=sum(whole - use.last_s for use in uses) / every,
        unused=1 - len(uses) * whole / every,
        num_stages=plan.num_stages,
        num_replicated=sum(stage.num_replicas > 1 for stage in plan.stages),
        num_remote_backward=sum(stage.has_remote_backward for stage in plan.stages),
        num_recomputed=sum(stage.recompute for stage in plan.stages),
    )


def describe_parts(parts: IterationParts) -> str:
    """One sentence on the plan, its critical path and its devices."""
    traits = [
        f"{count} {what}"
        for count, what in (
            (parts.num_replicated, "replicated"),
            (parts.num_remote_backward, "with a remote backward"),
            (parts.num_recomputed, "recomputed"),
        )
        if count
    ]
    shape = f"{parts.num_stages} stage{'s' if parts.num_stages > 1 else ''}"
    shape += f" ({', '.join(traits)})" if traits else ""
    path = [
        f"{part:.0%} {name}" for name, part in sorted(parts.path.items(), key=lambda item: -item[1]) if part >= 0.01
    ]
    waits = [
        f"{part:.0%} {what}"
        for part, what in (
            (parts.before, "before their first action"),
            (parts.between, "between actions"),
            (parts.after, "after their last action"),
            (parts.unused, "unused"),
        )
        if part >= 0.01
    ]
    return f"{shape}; critical path {', '.join(path)}; devices wait {', '.join(waits) or 'not at all'}"
