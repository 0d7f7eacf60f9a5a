"""A plan seen from one rank: who is who, and what each holds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import nn

from penstock.errors import InputError, MismatchError
from penstock.model import Block, is_compiled, shared_parameters
from penstock.plan import Plan
from penstock.plan.pricing import PARAMETERS, Costs
from penstock.program import Kind, Program
from penstock.runtime.tensors import Rows, microbatch_rows, replica_rows

NOWHERE = -1


@dataclass(frozen=True)
class StageView:
    """A stage with ranks for devices; `forward[i]` and `backward[i]` have the share i of the rows."""

    start: int
    stop: int
    shares: tuple[float, ...]
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    recompute: bool
    meets: bool
    """Whether its members must add something up over their rows (batch norm), in every forward and backward."""

    def replica(self, rank: int, *, backward: bool) -> int:
        """Which share a rank has, or NOWHERE."""
        group = self.backward if backward else self.forward
        return group.index(rank) if rank in group else NOWHERE

    def is_at_home(self, rank: int) -> bool:
        """Whether a rank runs forward and backward of the same rows."""
        return self.replica(rank, backward=True) == self.replica(rank, backward=False)


class Reducer(NamedTuple):
    """A reduction: the ranks that take part, in the order of their ring, and the names of the parameters."""

    is_tie: bool
    number: int
    ranks: tuple[int, ...]
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """All that ranks must agree on."""

    devices: tuple[str, ...]
    """The names of the devices in use: rank k is the k-th."""
    stages: tuple[StageView, ...]
    num_microbatches: int
    reducers: tuple[Reducer, ...]

    def rows(self, num_rows: int) -> list[list[tuple[Rows, ...]]]:
        """For a batch of so many rows: by stage and micro-batch the rows of each member."""
        parts = microbatch_rows(num_rows, self.num_microbatches)
        return [[replica_rows(part, stage.shares) for part in parts] for stage in self.stages]


def links_of(program: Program, devices: Sequence[str], kinds: Collection[Kind]) -> set[tuple[int, int]]:
    """The ranks between which messages of these kinds go: who sends, and to whom."""
    rank_of = {program.devices.index(name): rank for rank, name in enumerate(devices)}
    places = np.flatnonzero(np.isin(program.kind, tuple(kinds)))
    ends = np.unique(np.stack([program.device_of[places], program.peer[places]], 1), axis=0).tolist()
    return {(rank_of[source], rank_of[target]) for source, target in ends}


def split_jobs(program: Program, devices: Sequence[str]) -> set[tuple[int, int, int]]:
    """The jobs whose input and weight gradients are apart: rank, stage and micro-batch."""
    rank_of = {program.devices.index(name): rank for rank, name in enumerate(devices)}
    rows = np.flatnonzero(program.kind == Kind.I)
    columns = (program.device_of[rows], program.stage[rows], program.microbatch[rows])
    return {(rank_of[device], stage, mb) for device, stage, mb in zip(*(c.tolist() for c in columns), strict=True)}


def check_units(plan: Plan, blocks: Sequence[Block]) -> None:
    """Refuse a plan for another number of blocks."""
    if plan.num_units != len(blocks):
        raise MismatchError(
            f"the plan covers {plan.num_units} units, but the model has {len(blocks)} blocks",
            hint="Plan for a profile of this model, or name its blocks as they were named when it was profiled.",
        )


def make_layout(costs: Costs, blocks: Sequence[Block]) -> Layout:
    """The layout of a priced plan for these blocks; refuses what cannot be trained right."""
    plan = costs.plan
    used = sorted({int(device) for device in (*costs.forward_device, *costs.backward_device)})
    rank_of = {device: rank for rank, device in enumerate(used)}
    stages = tuple(
        StageView(
            start=stage.start,
            stop=stage.stop,
            shares=tuple(replica.share for replica in stage.forward),
            forward=tuple(rank_of[int(device)] for device in costs.forward_device[costs.replicas(number)]),
            backward=tuple(rank_of[int(device)] for device in costs.backward_device[costs.replicas(number)]),
            recompute=stage.recompute,
            meets=len(stage.forward) > 1 and any(map(_sums_over_rows, blocks[stage.start : stage.stop])),
        )
        for number, stage in enumerate(plan.stages)
    )
    _check_returns(costs, blocks)
    _check_compiled(stages, blocks)
    return Layout(
        devices=tuple(costs.cluster.devices[device].name for device in used),
        stages=stages,
        num_microbatches=plan.num_microbatches,
        reducers=_reducers(costs, blocks, stages, rank_of),
    )


def trained_names(blocks: Sequence[Block], stage: StageView) -> tuple[str, ...]:
    """The parameters of a stage that are trained, in the model's order."""
    found = [block.parameters for block in blocks[stage.start : stage.stop]]
    return tuple(dict.fromkeys(name for named in found for name, item in named.items() if item.requires_grad))


def first_trainers(layout: Layout, blocks: Sequence[Block]) -> dict[str, int]:
    """For each trained parameter one rank that has its whole gradient at the end of an iteration."""
    found: dict[str, int] = {}
    for stage in layout.stages:
        for name in trained_names(blocks, stage):
            found.setdefault(name, stage.backward[0])
    return found


def _reducers(
    costs: Costs, blocks: Sequence[Block], stages: Sequence[StageView], rank_of: Mapping[int, int]
) -> tuple[Reducer, ...]:
    shared: dict[tuple[int, ...], list[str]] = {}
    trained = {name for block in blocks for name, item in block.parameters.items() if item.requires_grad}
    home = [number for number, stage in enumerate(stages) for _ in range(stage.start, stage.stop)]
    for name, units in shared_parameters(blocks).items():
        holders = tuple(sorted({home[unit] for unit in units}))
        if len(holders) > 1 and name in trained:
            shared.setdefault(holders, []).append(name)
    found, between = [], set()
    for item in costs.reductions:
        ranks = tuple(rank_of[device] for device in item.ring.devices)
        if item.is_tie:
            # Several ties of the same stages are one to us: the first takes all parameters.
            names = shared.pop(tuple(item.stages), [])
            between |= set(names)
            found.append(Reducer(True, item.number, ranks, tuple(names)))
    for holders, names in shared.items():
        trainers = {rank for number in holders for rank in stages[number].backward}
        if len(trainers) > 1:
            raise MismatchError(
                f"stages {', '.join(map(str, holders))} share the parameter {names[0]!r}, which the profile of the "
                "plan does not say",
                hint="Name shared parameters as ties in the profile, and plan again.",
            )
    for item in costs.reductions:
        if not item.is_tie:
            names = [name for name in trained_names(blocks, stages[item.number]) if name not in between]
            ranks = tuple(rank_of[device] for device in item.ring.devices)
            found.append(Reducer(False, item.number, ranks, tuple(names)))
    return tuple(found)


def _check_returns(costs: Costs, blocks: Sequence[Block]) -> None:
    """A forward away from its backward must get fresh parameters; the program has that only if the profile says so."""
    flows = costs.flows
    returned = set(flows.source_replica[flows.what == PARAMETERS].tolist())
    for place in range(costs.num_replicas):
        number = int(costs.replica_stage[place])
        trained_here = costs.forward_device[place] in costs.backward_device[costs.replicas(number)]
        if trained_here or place in returned:
            continue
        stage = costs.plan.stages[number]
        for block in blocks[stage.start : stage.stop]:
            if any(parameter.requires_grad for parameter in block.parameters.values()):
                raise MismatchError(
                    f"block {block.name!r} has parameters, but the plan's profile says that it has none",
                    hint="Profile this model, and plan again.",
                )


def _check_compiled(stages: Sequence[StageView], blocks: Sequence[Block]) -> None:
    """What is compiled cannot be looked into: there, what concerns all rows would be done with those of one rank."""
    for stage in stages:
        for block in blocks[stage.start : stage.stop] if len(stage.shares) > 1 else ():
            compiled = (module for module in block.module.modules() if is_compiled(module))
            for module in (inner for outer in compiled for inner in outer.modules()):
                is_random = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
                if is_random or isinstance(module, nn.modules.batchnorm._BatchNorm):
                    raise InputError(
                        f"block {block.name!r}, whose rows are on several devices, is compiled (torch.compile) and has "
                        f"{type(module).__name__} in it, which must know of all rows",
                        hint="Plan so that one device has the whole stage (--no-replication), or do not compile it.",
                    )


def _sums_over_rows(block: Block) -> bool:
    return any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None)
        for module in block.module.modules()
    )
