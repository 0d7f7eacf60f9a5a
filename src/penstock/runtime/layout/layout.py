"""The layout of a plan: which rank holds which stages, rows, parameters and reductions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

from torch import nn

from penstock.errors import InputError, MismatchError
from penstock.model import Block, is_compiled, shared_parameters
from penstock.plan.pricing import PARAMETERS, Costs
from penstock.program import Kind
from penstock.program.slices import ProgramSlice
from penstock.runtime.layout.batch_rows import BatchRows

NO_REPLICA = -1
NUM_SIZES = 16
"""The rows of batches of so many different sizes are kept."""


@dataclass(frozen=True)
class StageView:
    """A stage on ranks. Replica i has `shares[i]` of the rows, and runs on `forward[i]` and `backward[i]`."""

    start: int
    stop: int
    shares: tuple[float, ...]
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    recompute: bool
    needs_sync: bool
    """Whether its replicas must sum over all rows (batch norm), in every forward and backward."""

    def replica(self, rank: int, *, backward: bool) -> int:
        """Return the index of the replica on a rank, or NO_REPLICA."""
        group = self.backward if backward else self.forward
        return group.index(rank) if rank in group else NO_REPLICA

    def is_local(self, rank: int) -> bool:
        """Return whether a rank runs forward and backward of the same replica."""
        return self.replica(rank, backward=True) == self.replica(rank, backward=False)


class Reducer(NamedTuple):
    """A gradient reduction: its ranks in the order of the ring, and the names of its parameters.

    If it is sharded, every rank gets a part of the sums only, steps it, and gathers the parameters of the others.
    """

    is_tie: bool
    number: int
    ranks: tuple[int, ...]
    parameters: tuple[str, ...]
    is_sharded: bool = False


@dataclass(frozen=True)
class Layout:
    """The part of a compiled plan that is the same on every rank."""

    devices: tuple[str, ...]
    """Names of the devices in use, by rank. A rank without a device has an empty name."""
    stages: tuple[StageView, ...]
    num_microbatches: int
    reducers: tuple[Reducer, ...]

    @cached_property
    def rank_of(self) -> dict[str, int]:
        """Ranks by the names of their devices."""
        return {name: rank for rank, name in enumerate(self.devices) if name}

    def rows(self, num_rows: int) -> BatchRows:
        """Return the rows of every replica, by stage and micro-batch, for a batch of `num_rows`."""
        return self._rows(num_rows)

    @cached_property
    def _rows(self) -> Callable[[int], BatchRows]:
        shares = [stage.shares for stage in self.stages]
        return lru_cache(NUM_SIZES)(lambda num_rows: BatchRows(num_rows, self.num_microbatches, shares))


def find_links(program: ProgramSlice, layout: Layout, kinds: Collection[Kind]) -> set[tuple[int, int]]:
    """Return the links (sender, receiver) that messages of these kinds use, on all ranks."""
    names, rank_of = program.devices, layout.rank_of
    return {
        (rank_of[names[sender]], rank_of[names[target]])
        for kind, sender, target in program.links.tolist()
        if kind in kinds
    }


def find_split_backwards(program: ProgramSlice, layout: Layout) -> set[tuple[int, int, int]]:
    """Return the split backwards that concern a rank, as rank, stage and micro-batch.

    These are its own, and those of its forwards whose backward runs on another rank.
    """
    return {(layout.rank_of[name], stage, microbatch) for name, stage, microbatch in program.split_backwards()}


def make_layout(costs: Costs, blocks: Sequence[Block]) -> Layout:
    """Return the layout of a priced plan for the blocks of a model.

    Raises:
        MismatchError: The model has parameters or shared parameters that the profile does not have.
        InputError: A replicated stage has a compiled layer that must see all rows.
    """
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
            needs_sync=len(stage.forward) > 1 and any(map(sums_over_rows, blocks[stage.start : stage.stop])),
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


def place_on_ranks(layout: Layout, ranks: Sequence[int]) -> Layout:
    """Return the layout with other ranks.

    Args:
        layout: A layout in which rank k is the k-th device.
        ranks: The rank of each device. Other ranks have an empty name.
    """
    if tuple(ranks) == tuple(range(len(layout.devices))):
        return layout
    names = dict(zip(ranks, layout.devices, strict=True))
    move = partial(map, ranks.__getitem__)
    return Layout(
        devices=tuple(names.get(rank, "") for rank in range(max(ranks) + 1)),
        stages=tuple(
            replace(stage, forward=tuple(move(stage.forward)), backward=tuple(move(stage.backward)))
            for stage in layout.stages
        ),
        num_microbatches=layout.num_microbatches,
        reducers=tuple(item._replace(ranks=tuple(move(item.ranks))) for item in layout.reducers),
    )


def trained_names(blocks: Sequence[Block], stage: StageView) -> tuple[str, ...]:
    """Return the trained parameters of a stage, in the order of the model."""
    per_block = [block.parameters for block in blocks[stage.start : stage.stop]]
    return tuple(dict.fromkeys(name for named in per_block for name, item in named.items() if item.requires_grad))


def find_grad_owners(layout: Layout, blocks: Sequence[Block]) -> dict[str, int]:
    """Return for each trained parameter one rank that has its complete gradient at the end of an iteration."""
    owners: dict[str, int] = {}
    for stage in layout.stages:
        for name in trained_names(blocks, stage):
            owners.setdefault(name, stage.backward[0])
    return owners


def _reducers(
    costs: Costs, blocks: Sequence[Block], stages: Sequence[StageView], rank_of: Mapping[int, int]
) -> tuple[Reducer, ...]:
    shared: dict[tuple[int, ...], list[str]] = {}
    trained = {name for block in blocks for name, item in block.parameters.items() if item.requires_grad}
    stage_of = [number for number, stage in enumerate(stages) for _ in range(stage.start, stage.stop)]
    for name, units in shared_parameters(blocks).items():
        holders = tuple(sorted({stage_of[unit] for unit in units}))
        if len(holders) > 1 and name in trained:
            shared.setdefault(holders, []).append(name)
    reducers, tied = [], set()
    for item in costs.reductions:
        ranks = tuple(rank_of[device] for device in item.ring.devices)
        if item.is_tie:
            # Several ties of the same stages are one reduction here: the first one takes all parameters.
            names = shared.pop(tuple(item.stages), [])
            tied |= set(names)
            reducers.append(Reducer(True, item.number, ranks, tuple(names)))
    for holders, names in shared.items():
        trainers = {rank for number in holders for rank in stages[number].backward}
        if len(trainers) > 1:
            raise MismatchError(
                f"stages {', '.join(map(str, holders))} share the parameter {names[0]!r}, but the profile of the plan "
                "has no tie for it",
                hint="Add shared parameters to the profile as ties, and plan again.",
            )
    for item in costs.reductions:
        if not item.is_tie:
            names = [name for name in trained_names(blocks, stages[item.number]) if name not in tied]
            ranks = tuple(rank_of[device] for device in item.ring.devices)
            is_sharded = bool(costs.sharded[item.number]) and bool(names)
            reducers.append(Reducer(False, item.number, ranks, tuple(names), is_sharded))
    return tuple(reducers)


def _check_returns(costs: Costs, blocks: Sequence[Block]) -> None:
    """Check that every remote forward gets its weights back. The program returns them only if the profile has them."""
    flows = costs.flows
    returned = set(flows.source_replica[flows.what == PARAMETERS].tolist())
    for replica in range(costs.num_replicas):
        number = int(costs.replica_stage[replica])
        is_trained_locally = costs.forward_device[replica] in costs.backward_device[costs.replicas(number)]
        if is_trained_locally or replica in returned:
            continue
        stage = costs.plan.stages[number]
        for block in blocks[stage.start : stage.stop]:
            if any(parameter.requires_grad for parameter in block.parameters.values()):
                raise MismatchError(
                    f"layer {block.name!r} has parameters, but it has none in the profile of the plan",
                    hint="Profile this model, and plan again.",
                )


def _check_compiled(stages: Sequence[StageView], blocks: Sequence[Block]) -> None:
    """Check that no replica has a compiled layer that must see all rows: compiled code cannot be instrumented."""
    for stage in stages:
        for block in blocks[stage.start : stage.stop] if len(stage.shares) > 1 else ():
            module = compiled_over_rows(block)
            if module is not None:
                raise InputError(
                    f"layer {block.name!r}, whose rows are on several devices, is compiled (torch.compile) and "
                    f"contains {type(module).__name__}, which depends on all rows",
                    hint="Plan without replicas of this stage (--no-replication), or do not compile it.",
                )


def compiled_over_rows(block: Block) -> nn.Module | None:
    """Return a module in compiled code that depends on all rows of a micro-batch, if the block has one."""
    compiled = (module for module in block.module.modules() if is_compiled(module))
    for module in (inner for outer in compiled for inner in outer.modules()):
        is_random = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        if is_random or isinstance(module, nn.modules.batchnorm._BatchNorm):
            return module
    return None


def sums_over_rows(block: Block) -> bool:
    """Return whether the block has batch norm that normalizes over the rows of a micro-batch."""
    return any(
        isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None)
        for module in block.module.modules()
    )
