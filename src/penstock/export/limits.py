"""What an engine can say of a plan, and what of a given plan it cannot.

`Limits` describes an engine as data. `find_obstacles` compares a plan with it; `penstock plan --engine` restricts the
search space by it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.export.subject import Subject
from penstock.plan import Shape
from penstock.profile import Cuts, allowed_cuts, is_inside_block
from penstock.program import Action, Kind
from penstock.units import show_count

ROW_TOLERANCE = 1e-6
_ENDS = {"before": "the embedding", "behind": "the head"}


@dataclass(frozen=True)
class Limits:
    """What an engine can run.

    Attributes:
        shapes: The maps of stages to pipeline ranks; None for any map.
        schedule: The only schedule; None for any order of the actions.
        split_backward: Input and weight gradients as separate actions.
        replicas: Whether stages have replicas: "equal" numbers of them, or any number ("unequal").
        recompute: Recomputation of no stage, of "all" stages or none, or of any "stage".
        ties: Parameters that stages share: "none", of the "ends" (the first and the last stage), or "any".
        cuts: Where stages may begin.
        needs_blocks: Whether the model must be one stack of numbered blocks between an embedding and a head.
        part_rounds: Loops in which the number of micro-batches is not a multiple of the number of pipeline ranks.
        exported_cuts: Where stages of exported plans may begin, if the engine can run more than `cuts` with another
            kind of model.
    """

    shapes: frozenset[Shape] | None
    schedule: str | None
    split_backward: bool
    replicas: Literal["equal", "unequal"]
    recompute: Literal["none", "all", "stage"]
    ties: Literal["none", "ends", "any"]
    cuts: Cuts
    needs_blocks: bool = False
    part_rounds: bool = True
    exported_cuts: Cuts | None = None


class Obstacle(NamedTuple):
    """Something that an engine cannot say.

    Attributes:
        feature: Its name.
        what: Where it is in the plan.
        switch: The option of `penstock plan` that plans without it.
    """

    feature: str
    what: str
    switch: str


def find_obstacles(
    subject: Subject, limits: Limits, schedule_orders: Mapping[str, tuple[Action, ...]] | None
) -> tuple[Obstacle, ...]:
    """Everything in a plan that an engine cannot say.

    Args:
        subject: The plan.
        limits: The engine.
        schedule_orders: The orders of the engine's own schedule; None if the engine runs any order.
    """
    remote = [number for number, stage in enumerate(subject.plan.stages) if stage.has_remote_backward]
    if remote:
        what = f"the backward of {_stages(remote)} runs on other devices than the forward"
        return (Obstacle("two sets of cuts", what, "--one-cut"),)
    return (
        *_replicas(subject, limits),
        *_map(subject, limits),
        *_cuts(subject, limits),
        *_backwards(subject, limits),
        *_recomputation(subject, limits),
        *_sharded_optimizer(subject),
        *_ties(subject, limits),
        *_order(subject, limits, schedule_orders),
    )


def _stages(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")
    return f"stage {shown}" if len(numbers) == 1 else f"stages {shown}"


def _replicas(subject: Subject, limits: Limits) -> Iterator[Obstacle]:
    stages = subject.plan.stages
    counts = [stage.num_replicas for stage in stages]
    if limits.replicas == "equal" and len(set(counts)) > 1:
        what = f"stages have {min(counts)} to {max(counts)} replicas; every stage must have the same number"
        yield Obstacle("unequal replicas", what, "--equal-replicas")
    unequal = [
        number
        for number, stage in enumerate(stages)
        if max(replica.share for replica in stage.forward) - min(replica.share for replica in stage.forward)
        > ROW_TOLERANCE / subject.plan.micro_batch_size
    ]
    if unequal:
        what = f"the replicas of {_stages(unequal)} get different shares of the rows"
        yield Obstacle("unequal shares", what, "--equal-replicas")
    odd = [count for count in sorted(set(counts)) if subject.plan.micro_batch_size % count]
    if odd and not unequal:
        what = f"{show_count(subject.plan.micro_batch_size, 'row')} of a micro-batch over {odd[0]} replicas"
        yield Obstacle("parts of rows", what, "--whole-rows, or another --micro-batch-size")


def _map(subject: Subject, limits: Limits) -> Iterator[Obstacle]:
    try:
        grid = subject.grid
    except ValueError as error:
        yield Obstacle("map of stages to devices", str(error), "--no-virtual-stages")
        return
    if limits.shapes is not None and grid.shape not in limits.shapes:
        known = " or ".join(sorted(shape.value for shape in limits.shapes))
        actual = grid.shape.value if grid.shape else f"{' '.join(map(str, grid.rank_of_stage[:16]))}"
        yield Obstacle("map of stages to devices", f"the map is {actual}; it must be {known}", "--no-virtual-stages")
    if grid.shape is Shape.V and grid.num_chunks > 2 and limits.shapes is not None:
        what = f"the V has {grid.num_chunks} stages per device; it must have 2"
        yield Obstacle("map of stages to devices", what, "--no-virtual-stages")
    num = subject.plan.num_microbatches
    if not limits.part_rounds and grid.num_chunks > 1 and num % grid.num_ranks:
        what = f"{num} micro-batches, with several stages for each of {grid.num_ranks} pipeline ranks"
        yield Obstacle("rounds of micro-batches", what, f"-m {-(-num // grid.num_ranks) * grid.num_ranks}")
    for rank, devices in enumerate(grid.devices):
        orders = {subject.orders[device] for device in devices}
        if len(orders) > 1:
            what = f"{', '.join(devices)} (pipeline rank {rank}) run their actions in different orders"
            yield Obstacle("orders of replicas", what, "plan for the engine, or --no-replication")
            return


def _cuts(subject: Subject, limits: Limits) -> Iterator[Obstacle]:
    roles, names = subject.roles, subject.layer_names
    cuts = [stage.start for stage in subject.plan.stages[1:]]
    if limits.needs_blocks:
        stacks = {role.stack for role in roles if role.place == "block"}
        if len(stacks) != 1 or any(role.place == "between" for role in roles):
            found = f"{len(stacks)} stacks" if stacks else "no numbered blocks"
            what = (
                f"the model must be one stack of numbered blocks, but the layers of {subject.profile.name} have {found}"
            )
            yield Obstacle("model", what, "another engine")
            return
        missing = [side for side in ("before", "behind") if all(role.place != side for role in roles)]
        if missing:
            what = f"no layer of {subject.profile.name} is {missing[0]} the blocks, where {_ENDS[missing[0]]} belongs"
            yield Obstacle("model", what, "another engine")
            return
    allowed = set(allowed_cuts(roles, limits.exported_cuts or limits.cuts))
    for cut in cuts:
        if cut not in allowed:
            inside = is_inside_block(roles, cut)
            where = "inside a block" if inside else "not between two blocks"
            what = f"a stage begins at layer {names[cut]!r}, {where}"
            yield Obstacle(
                "cuts inside blocks" if inside else "cuts outside of blocks",
                what,
                "--whole-blocks" if inside or limits.cuts != "between" else "plan for the engine",
            )
            return


def _backwards(subject: Subject, limits: Limits) -> Iterator[Obstacle]:
    if limits.split_backward:
        return
    split = sorted({action.stage for order in subject.orders.values() for action in order if action.kind is Kind.I})
    if split:
        what = f"the backward of {_stages(split)} is split into input and weight gradients"
        yield Obstacle("split backward", what, "--no-backward-split")


def _recomputation(subject: Subject, limits: Limits) -> Iterator[Obstacle]:
    stages = subject.plan.stages
    recomputed = [number for number, stage in enumerate(stages) if stage.recompute]
    if not recomputed or limits.recompute == "stage" or (limits.recompute == "all" and len(recomputed) == len(stages)):
        return
    what = f"{_stages(recomputed)} {'is' if len(recomputed) == 1 else 'are'} recomputed"
    if limits.recompute == "all":
        yield Obstacle("recomputation of some stages", f"{what}, the others are not", "--no-recomputation")
    else:
        yield Obstacle("recomputation", what, "--no-recomputation")


def _sharded_optimizer(subject: Subject) -> Iterator[Obstacle]:
    sharded = [number for number, stage in enumerate(subject.plan.stages) if stage.sharded_optimizer]
    if sharded:
        what = f"the replicas of {_stages(sharded)} share the optimizer state"
        yield Obstacle("sharded optimizer", what, "--no-sharded-optimizer")


def _ties(subject: Subject, limits: Limits) -> Iterator[Obstacle]:
    if limits.ties == "any":
        return
    stage_of = [number for number, stage in enumerate(subject.plan.stages) for _ in range(stage.start, stage.stop)]
    last = len(stage_of) - 1
    for tie in subject.profile.ties:
        stages = sorted({stage_of[unit] for unit in tie.units})
        is_at_ends = limits.ties == "ends" and set(tie.units) == {0, last}
        if len(stages) > 1 and not is_at_ends:
            yield Obstacle("tied parameters", f"{_stages(stages)} share the parameters {tie.name!r}", "--untied")


def _order(
    subject: Subject, limits: Limits, schedule_orders: Mapping[str, tuple[Action, ...]] | None
) -> Iterator[Obstacle]:
    if schedule_orders is not None and any(
        action.kind in (Kind.F, Kind.B) for order in subject.orders.values() for action in order
    ):
        differing = [
            device for device, order in subject.orders.items() if _fused(order) != _fused(schedule_orders[device])
        ]
        if differing:
            what = f"the actions of {differing[0]} are in another order than {limits.schedule} has"
            yield Obstacle("order of actions", what, f"--schedule {limits.schedule}")
    last = len(subject.plan.stages) - 1
    for order in subject.orders.values():
        forwards = [action.microbatch for action in order if action.stage == last and action.kind is Kind.F]
        if forwards != sorted(forwards):
            yield Obstacle(
                "order of actions", "the last stage does not take the micro-batches in turn", "--schedule 1f1b"
            )


def _fused(order: tuple[Action, ...]) -> list[Action]:
    """The order without weight gradients and recomputation, which have obstacles of their own."""
    return [
        action._replace(kind=Kind.B) if action.kind is Kind.I else action
        for action in order
        if action.kind not in (Kind.W, Kind.R)
    ]
