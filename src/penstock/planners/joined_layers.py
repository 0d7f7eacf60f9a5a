"""Layers that must be in one stage, joined into one layer for planning, so that no planner cuts between them.

These are the layers of a restriction `one_stage`, and the layers of a block if the problem does not cut blocks.

A run of layers from the first to the last one of a restriction `one_stage` is joined, with the layers between them;
runs that overlap become one. The plan of the joined layers is then a plan of the layers themselves. Joined costs are
sums; the plan is priced with the layers themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np

from penstock.errors import InputError
from penstock.plan import Origin, Plan
from penstock.planners.problem import Problem
from penstock.profile import Profile, Restriction, Sizes, Tie, Times, Unit, allowed_cuts, fit, layer_roles


@dataclass(frozen=True)
class JoinedLayers:
    """A problem whose layers are runs of the layers of another one.

    Attributes:
        problem: The problem to plan.
        origin: The problem with all layers.
        cuts: The layer at which each joined layer starts, and the number of layers.
    """

    problem: Problem
    origin: Problem
    cuts: tuple[int, ...]

    def expand(self, plan: Plan) -> Plan:
        """The plan of all layers, without the order of its actions."""
        origin = self.origin
        stages = tuple(
            msgspec.structs.replace(stage, start=self.cuts[stage.start], stop=self.cuts[stage.stop])
            for stage in plan.stages
        )
        profile = Origin(name=origin.profile.name, digest=origin.profile.digest, source=origin.profile_source)
        return msgspec.structs.replace(plan, stages=stages, profile=profile, layers=origin.layers, order=None)


def join_layers(problem: Problem) -> JoinedLayers | None:
    """Join the layers that must be in one stage.

    Returns:
        The problem with joined layers; None if no layers must be in one stage.

    Raises:
        InputError: The problem requires more stages than there are joined layers.
    """
    profile = problem.profile
    rules = [item for item in profile.restrictions if item.rule == "one_stage"]
    cuts = _cuts(profile.num_units, rules)
    if problem.cuts != "layers":
        kept = set(allowed_cuts(layer_roles([unit.name for unit in profile.units]), problem.cuts))
        cuts = tuple(cut for cut in cuts if cut in kept)
    if len(cuts) == profile.num_units + 1:
        return None
    num_stages = (problem.pipeline_depth or 1) * problem.num_chunks
    if num_stages > len(cuts) - 1 and not rules:
        raise InputError(
            f"number of stages ({num_stages}) must be at most {len(cuts) - 1}, because stages have whole blocks",
            hint="Use a smaller pipeline depth or fewer stages per device.",
        )
    if num_stages > len(cuts) - 1:
        rule = max(rules, key=lambda item: max(item.units) - min(item.units))
        first, last = (profile.units[unit].name for unit in (min(rule.units), max(rule.units)))
        reason = f": {rule.reason}" if rule.reason else ""
        raise InputError(
            f"number of stages ({num_stages}) must be at most {len(cuts) - 1}, because layers {first!r} to {last!r} "
            f"must be in one stage{reason}",
            hint="Use a smaller pipeline depth or fewer stages per device, or change the model so that these layers "
            "share nothing.",
        )
    return JoinedLayers(replace(problem, profile=_joined(profile, cuts), cuts="layers"), problem, cuts)


def with_joined_layers(planner: Callable[..., Plan]) -> Callable[..., Plan]:
    """The planner, applied to joined layers if some layers must be in one stage."""

    def plan(problem: Problem, **switches: bool) -> Plan:
        joined = join_layers(problem)
        if joined is None:
            return planner(problem, **switches)
        return joined.expand(planner(joined.problem, **switches))

    return plan


def _cuts(num_units: int, rules: Sequence[Restriction]) -> tuple[int, ...]:
    is_cut = np.ones(num_units + 1, dtype=np.bool_)
    for item in rules:
        is_cut[min(item.units) + 1 : max(item.units) + 1] = False
    return tuple(np.flatnonzero(is_cut).tolist())


def _joined(profile: Profile, cuts: Sequence[int]) -> Profile:
    runs = list(pairwise(cuts))
    run_of = [number for number, (start, stop) in enumerate(runs) for _ in range(start, stop)]

    def map_units(units: Sequence[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run_of[unit] for unit in units))

    ties = [msgspec.structs.replace(tie, units=map_units(tie.units)) for tie in profile.ties]
    restrictions = []
    for item in profile.restrictions:
        units = item.units
        if item.rule == "same_replicas":
            # Only the tensors after the last layer of a run are sent.
            units = tuple(unit for unit in units if unit + 1 in cuts)
        if item.rule != "one_stage" and units:
            restrictions.append(msgspec.structs.replace(item, units=map_units(units)))
    largest = profile.largest_parameter_bytes
    return msgspec.structs.replace(
        profile,
        units=tuple(
            profile.units[start] if stop == start + 1 else _joined_unit(profile, start, stop) for start, stop in runs
        ),
        ties=tuple(tie for tie in ties if len(tie.units) > 1),
        largest_parameter_bytes=tuple(max(largest[start:stop]) for start, stop in runs) if largest else (),
        restrictions=tuple(restrictions),
        spread=None,  # the plan is judged with the layers themselves
    )


def _joined_unit(profile: Profile, start: int, stop: int) -> Unit:
    units = profile.units[start:stop]
    # Parameters that several of the layers share count once.
    repeats = [(tie, sum(start <= unit < stop for unit in tie.units)) for tie in profile.ties]

    def shared_bytes(ties: Sequence[tuple[Tie, int]]) -> int:
        return sum(max(count - 1, 0) * tie.parameter_bytes for tie, count in ties)

    trained = [(tie, count) for tie, count in repeats if tie.is_trained]
    return Unit(
        name=f"{units[0].name} to {units[-1].name}",
        parameter_bytes=sum(unit.parameter_bytes for unit in units) - shared_bytes(repeats),
        trained_parameter_bytes=sum(unit.trained_bytes for unit in units) - shared_bytes(trained),
        sizes=tuple(_joined_sizes(profile, start, stop, size.micro_batch_size) for size in units[-1].sizes),
        times=tuple(_joined_times(units, time) for time in units[-1].times),
        recomputed_bytes=_joined_recomputed(profile, start, stop),
    )


def _joined_recomputed(profile: Profile, start: int, stop: int) -> tuple[int, ...]:
    """Of the largest of the layers, for each size of the last one."""
    if not any(unit.recomputed_bytes for unit in profile.units[start:stop]):
        return ()
    costs = fit(profile, profile.kinds[0])
    rows = [size.micro_batch_size for size in profile.units[stop - 1].sizes]
    return tuple(round(float(costs.at(each).recomputed_bytes[start:stop].max())) for each in rows)


def _joined_times(units: Sequence[Unit], like: Times) -> Times:
    """Sums of times; all layers have times for the same device kinds and micro-batch sizes."""
    parts = [
        time
        for unit in units
        for time in unit.times
        if (time.kind, time.micro_batch_size) == (like.kind, like.micro_batch_size)
    ]
    return Times(
        kind=like.kind,
        micro_batch_size=like.micro_batch_size,
        forward_s=sum(time.forward_s for time in parts),
        input_grad_s=sum(time.input_grad_s for time in parts),
        weight_grad_s=sum(time.weight_grad_s for time in parts),
        step_s=sum(time.step_s for time in parts),
    )


def _joined_sizes(profile: Profile, start: int, stop: int, rows: int) -> Sizes:
    """Sizes for one micro-batch size, from the fitted lines: layers may be measured at different sizes."""
    costs = fit(profile, profile.kinds[0]).at(rows)
    return Sizes(
        micro_batch_size=rows,
        cut_bytes=round(float(costs.cut_bytes[stop - 1])),
        saved_bytes=round(float(costs.saved_bytes[start:stop].sum())),
        pending_bytes=round(float(costs.pending_bytes[start:stop].sum())),
    )
