"""Phase 7 of assembly: the executor and everything around it on this rank."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.distributed.distributed_c10d import _get_default_store

from penstock.dist import Consensus, PeerExchange, status_board
from penstock.model import LossFunction
from penstock.program.slices import ProgramSlice
from penstock.runtime.assembly.compilation import Compiled, Validated
from penstock.runtime.assembly.connection import Connection, Materialized, OpenTransport
from penstock.runtime.assembly.sharded_stages import find_shard_owners, keep_originals, sharded_groups
from penstock.runtime.assembly.stages import trained_parameters
from penstock.runtime.checks import (
    BatchShapeCheck,
    ProfileDrift,
    SharedBufferCheck,
    batch_check_pairs,
    release_unused,
)
from penstock.runtime.executor import (
    Evaluator,
    Executor,
    ExecutorParts,
    GradNorm,
    GroupGradReducer,
    LossExchange,
    Routing,
    WeightReturn,
    any_rank,
    select_forwards,
)
from penstock.runtime.health import Heartbeat, RankStatus
from penstock.runtime.layout import Layout, find_grad_owners, find_split_backwards
from penstock.runtime.loss import BatchLoss, RankTrials, SumGrads
from penstock.runtime.options import PipelineOptions
from penstock.runtime.precision import MixedPrecision, loss_for
from penstock.runtime.remote_backward import SavedTensorTransfer, check_recompute
from penstock.runtime.sharding import OptimizerShards, ShardedGroup, collect_whole
from penstock.runtime.stage import TorchStage
from penstock.runtime.state import Checkpoints, RankState, holders, state_entries, writers
from penstock.runtime.transport import TorchTransport


@dataclass(frozen=True)
class RankParts:
    """Result of phase 7: everything that a pipeline uses on this rank."""

    compiled: Compiled
    layout: Layout
    device: torch.device
    rank: int
    control: Any
    exchange: PeerExchange
    """Carries objects between rank 0 and the others."""
    transport: TorchTransport
    runners: Mapping[int, TorchStage]
    executor: Executor
    evaluator: Evaluator
    weight_return: WeightReturn
    losses: LossExchange
    precision: MixedPrecision
    batch_loss: BatchLoss
    sum_grads: SumGrads
    shards: OptimizerShards
    has_shards: bool
    """Whether some rank has sharded stages."""
    collect_whole: Callable[[Mapping[str, Mapping[str, Any]]], dict[str, dict[str, Any]]]
    """Puts values of parameters that a sharded optimizer divides together."""
    grad_norm: GradNorm
    batch_check: BatchShapeCheck
    shared_buffers: SharedBufferCheck
    profile_drift: ProfileDrift
    checkpoints: Checkpoints
    heartbeat: Heartbeat
    lacks_values: bool
    timeout_s: float


def arm(
    validated: Validated,
    compiled: Compiled,
    program: ProgramSlice,
    connection: Connection,
    materialized: Materialized,
    opened: OpenTransport,
    runners: Mapping[int, TorchStage],
    loss: LossFunction,
    options: PipelineOptions,
    read_status: Callable[[], RankStatus],
) -> RankParts:
    """Phase 7: build the executor and everything around it, release unused parameters, and start the heartbeat."""
    model, layout = validated.model, compiled.layout
    rank, control, transport, blocks = connection.rank, connection.control, opened.transport, materialized.blocks
    owners = find_grad_owners(layout, blocks)
    trained = trained_parameters(layout, rank, runners)
    sharded = sharded_groups(layout, rank, opened, runners)
    shards = OptimizerShards(sharded, transport)
    stepped = shards.stepped(trained)
    shard_owners = find_shard_owners(layout, blocks)
    owners |= shard_owners
    keep_originals(materialized.conversion, shards, stepped, trained)
    precision = MixedPrecision(
        options.training_precision,
        stepped,
        materialized.conversion,
        validated.device,
        partial(any_rank, group=control, transport=transport),
        options.loss_scale,
    )
    loss = loss_for(loss, options.training_precision)
    grad_norm = GradNorm(
        {name: precision.parameters.get(name, item) for name, item in model.named_parameters() if name in owners},
        owners,
        control,
        transport,
        shards.slices,
    )
    entries = state_entries(model)
    release_unused(model, [block for runner in runners.values() for block in runner.blocks])
    routing = Routing(layout, rank)
    actions = list(program.actions())
    status_board().set_program(layout.devices[rank] if rank < len(layout.devices) else "", actions)
    by_stage = {number: list(runner.trained.values()) for number, runner in runners.items()}
    weight_return = WeightReturn(actions, by_stage, trained.values(), transport, routing)
    parts = ExecutorParts(
        routing=routing,
        actions=actions,
        runners=runners,
        loss=loss,
        trials=RankTrials(model, loss, is_whole_model=len(layout.stages) == 1),
        transport=transport,
        reducer=_make_grad_reducer(layout, rank, opened, runners, sharded),
        weights=weight_return,
        transfer=SavedTensorTransfer(),
        check_recompute=check_recompute,
        split=find_split_backwards(program, layout),
        device=validated.device,
    )
    pairs = batch_check_pairs(program, layout, connection.world, in_order=opened.groups.is_in_order)
    store = _get_default_store()
    batch_check = BatchShapeCheck(pairs, rank, transport, routing.num_tags, store, control.group_name)
    heartbeat = Heartbeat(control, layout.devices, read_status, transport.abandon)
    transport.watch.on_stuck = heartbeat.end
    # Consensus is for checkpoints only, which have a deadline of their own.
    extra_s = max(0.0, options.checkpoint_timeout_s - options.timeout_s)
    exchange = PeerExchange(transport, rank, connection.world, extra_s)
    consensus = Consensus(exchange, rank, connection.world, heartbeat.report_failure)
    held_by = holders(blocks, layout.stages) | {name: [owner] for name, owner in shard_owners.items()}
    collect = partial(collect_whole, slices=shards.slices, rank=rank, transport=transport)
    state = RankState(
        model=model,
        entries=entries,
        holders={entry.name: held_by[entry.name] for entry in entries},
        writers=writers(entries, held_by),
        trained=precision.parameters,
        masters=precision.masters.weights,
        scaler=precision.scaler,
        device=validated.device,
        slices=shards.slices,
        collect=collect,
    )
    return RankParts(
        compiled=compiled,
        layout=layout,
        device=validated.device,
        rank=rank,
        control=control,
        exchange=PeerExchange(transport, rank, connection.world),
        transport=transport,
        runners=runners,
        executor=Executor(parts),
        evaluator=Evaluator(
            replace(parts, actions=select_forwards(actions), reducer=GroupGradReducer({}, transport), split=())
        ),
        weight_return=weight_return,
        losses=LossExchange(layout, rank, connection.world, transport),
        batch_loss=BatchLoss(loss),
        precision=precision,
        sum_grads=SumGrads(stepped.values()),
        shards=shards,
        has_shards=any(item.is_sharded for item in layout.reducers),
        collect_whole=collect,
        grad_norm=grad_norm,
        batch_check=batch_check,
        shared_buffers=materialized.shared_buffers,
        profile_drift=ProfileDrift(options.profile, blocks, layout.stages, rank),
        checkpoints=Checkpoints(state, consensus),
        heartbeat=heartbeat,
        lacks_values=materialized.lacks_values,
        timeout_s=options.timeout_s,
    )


def _make_grad_reducer(
    layout: Layout,
    rank: int,
    opened: OpenTransport,
    runners: Mapping[int, TorchStage],
    sharded: Sequence[ShardedGroup],
) -> GroupGradReducer:
    """Return the reducer of this rank's gradients, with the process group and the parameters of each reduction."""
    named = {name: item for runner in runners.values() for name, item in runner.trained.items()}
    reductions = {
        (item.is_tie, item.number): (group, [named[name] for name in item.parameters])
        for item, group in zip(layout.reducers, opened.reductions, strict=True)
        if rank in item.ranks
    }
    return GroupGradReducer(reductions, opened.transport, sharded)
