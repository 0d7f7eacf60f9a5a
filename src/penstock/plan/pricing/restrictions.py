"""What the restrictions of a profile mean for a plan: whether its stages break one, and what its order must meet."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.plan.types import Plan, Stage
from penstock.profile import Profile, Restriction


class Violation(NamedTuple):
    """A restriction that the stages of a plan break: a message and a hint."""

    what: str
    hint: str


class PlanRestrictions(NamedTuple):
    """The restrictions of a plan.

    Attributes:
        num_checked: How many restrictions the profile has.
        violation: The first one that the stages break, or None. Training refuses the plan in every order.
        synced: For each stage whose replicas exchange sums, the name of the first layer that does so.
        fused: For each stage whose backward must not be split, the name of the first such layer.
    """

    num_checked: int = 0
    violation: Violation | None = None
    synced: Mapping[int, str] = {}
    fused: Mapping[int, str] = {}


NO_RESTRICTIONS = PlanRestrictions()


def find_restrictions(plan: Plan, profile: Profile) -> PlanRestrictions:
    """Apply the restrictions of a profile to the stages of a plan."""
    if not profile.restrictions:
        return NO_RESTRICTIONS
    stage_of = [number for number, stage in enumerate(plan.stages) for _ in range(stage.start, stage.stop)]
    synced: dict[int, str] = {}
    fused: dict[int, str] = {}
    for item in profile.restrictions:
        for unit in item.units:
            number = stage_of[unit]
            if item.rule == "sync_replicas" and plan.stages[number].num_replicas > 1:
                synced.setdefault(number, profile.units[unit].name)
            elif item.rule == "fused_backward":
                fused.setdefault(number, profile.units[unit].name)
    violation = next((found for item in profile.restrictions for found in _violations(item, plan, profile)), None)
    return PlanRestrictions(len(profile.restrictions), violation, synced, fused)


def _violations(item: Restriction, plan: Plan, profile: Profile) -> Iterator[Violation]:
    names = [profile.units[unit].name for unit in item.units]
    reason = f": {item.reason}" if item.reason else ""
    if item.rule == "one_stage":
        holders = [number for number, stage in enumerate(plan.stages) if _holds(stage, item)]
        if len(holders) > 1:
            yield Violation(
                f"layers {names[0]!r} and {names[-1]!r} must be in one stage, but they are in stages {holders[0]} and "
                f"{holders[-1]}{reason}",
                "Plan all of these layers into one stage, or change the model so that they share nothing.",
            )
        return
    not_sent = {unit for other in profile.restrictions if other.rule == "no_transfer" for unit in other.units}
    for number, stage in enumerate(plan.stages):
        inside = [unit for unit in item.units if stage.start <= unit < stage.stop]
        if not inside:
            continue
        name = profile.units[inside[0]].name
        if item.rule == "one_replica" and stage.num_replicas > 1:
            yield Violation(
                f"stage {number} has {stage.num_replicas} replicas, but layer {name!r} must run on one device{reason}",
                "Plan without replicas of this stage (--no-replication), or use the planner auto.",
            )
        if item.rule == "no_recompute" and stage.recompute:
            yield Violation(
                f"stage {number} is recomputed, but the forward of layer {name!r} cannot be repeated{reason}",
                "Plan without recomputation of this stage (--no-recomputation), or use the planner auto.",
            )
        elif item.rule == "no_recompute" and stage.has_remote_backward:
            sender = next((unit for unit in range(stage.start, stage.stop) if unit in not_sent), None)
            if sender is not None:
                yield Violation(
                    f"stage {number} has a remote backward, but the forward of layer {name!r} cannot be repeated"
                    f"{reason}; the saved tensors of layer {profile.units[sender].name!r} cannot be transferred either",
                    "Plan without a remote backward of this stage (--one-cut), or use the planner auto.",
                )
        is_cut = item.rule == "same_replicas" and stage.stop - 1 in inside and number + 1 < plan.num_stages
        if is_cut and _shares(stage) != _shares(plan.stages[number + 1]):
            yield Violation(
                f"stages {number} and {number + 1} have replicas with different rows, but the tensors after layer "
                f"{profile.units[stage.stop - 1].name!r} cannot be divided by rows{reason}",
                "Put rows first in all outputs of layers, or plan the same replicas on both sides "
                "(--no-replication, or the planner auto).",
            )


def _holds(stage: Stage, item: Restriction) -> bool:
    return any(stage.start <= unit < stage.stop for unit in item.units)


def _shares(stage: Stage) -> tuple[float, ...]:
    return tuple(replica.share for replica in stage.forward)
