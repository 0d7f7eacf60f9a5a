"""Assembly of one rank's part of a pipeline, in seven phases.

    phase               needs a process group   result
    1. validate         no                      the layers of the model, and its device
    2. compile          no                      the proved program, and the layout of the plan on ranks
    3. connect          yes                     rank, backend and control group
    4. materialize      yes                     values of a model on the meta device; all ranks have the same inputs
    5. open transport   yes                     process groups and transport
    6. build stages     no                      the stages of this rank
    7. arm              yes                     executor, checks, checkpoints and heartbeat

Each phase is a function that returns a frozen part. The order of phases 3 to 5 matters: an error on one rank in phase 4
is raised on all ranks, and ranks with different plans would open different process groups in phase 5. Parts of the
early phases refer to the whole model and must not outlive the assembly: phase 7 releases what other ranks hold.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store

from penstock.dist import Consensus, translate_errors
from penstock.errors import InputError
from penstock.model import Block, find_blocks, keep_freed_memory
from penstock.plan import Plan
from penstock.program import SEND_KINDS
from penstock.program.proof import Proof
from penstock.runtime.checks import (
    BatchShapeCheck,
    ProfileDrift,
    SharedBufferCheck,
    batch_check_pairs,
    check_consistency,
    materialize_held,
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
    select_forwards,
)
from penstock.runtime.health import Heartbeat, RankStatus
from penstock.runtime.layout import (
    Layout,
    check_num_layers,
    check_replica_sync,
    compile_plan,
    find_grad_owners,
    find_links,
    find_split_backwards,
    make_layout,
)
from penstock.runtime.options import PipelineOptions
from penstock.runtime.remote_backward import SavedTensorTransfer, check_recompute
from penstock.runtime.stage import Loss, ReplicaSync, TorchStage
from penstock.runtime.state import (
    Checkpoints,
    RankState,
    check_materializable,
    is_on_meta,
    state_entries,
    writers,
)
from penstock.runtime.transport import (
    ProcessGroups,
    TorchTransport,
    Transport,
    open_control_group,
    open_process_groups,
    select_backend,
)
from penstock.units import show_count

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validated:
    """Result of phase 1."""

    model: nn.Module
    plan: Plan
    blocks: tuple[Block, ...]
    device: torch.device
    """The device of the model; for a model on the meta device, the one it will be on."""


@dataclass(frozen=True)
class Compiled:
    """Result of phase 2."""

    proof: Proof
    layout: Layout


@dataclass(frozen=True)
class Connection:
    """Result of phase 3."""

    rank: int
    world: int
    backend: str
    control: Any
    """The control group."""


@dataclass(frozen=True)
class Materialized:
    """Result of phase 4."""

    blocks: tuple[Block, ...]
    lacks_values: bool
    """Whether the values come with a checkpoint that is loaded later."""
    shared_buffers: SharedBufferCheck


@dataclass(frozen=True)
class OpenTransport:
    """Result of phase 5."""

    groups: ProcessGroups
    reductions: Sequence[Any]
    """The process group of each reduction of the layout."""
    transport: TorchTransport


@dataclass(frozen=True)
class RankParts:
    """Result of phase 7: everything that a pipeline uses on this rank."""

    proof: Proof
    layout: Layout
    device: torch.device
    rank: int
    control: Any
    transport: TorchTransport
    runners: Mapping[int, TorchStage]
    executor: Executor
    evaluator: Evaluator
    weight_return: WeightReturn
    losses: LossExchange
    grad_norm: GradNorm
    batch_check: BatchShapeCheck
    shared_buffers: SharedBufferCheck
    profile_drift: ProfileDrift
    checkpoints: Checkpoints
    heartbeat: Heartbeat
    lacks_values: bool


def assemble(
    model: nn.Module, plan: Plan, loss: Loss, options: PipelineOptions, read_status: Callable[[], RankStatus]
) -> RankParts:
    """Run all phases.

    Args:
        model: The model. Afterwards parameters that this rank does not hold are on the meta device.
        plan: The plan.
        loss: The loss function.
        options: The options of the pipeline.
        read_status: Returns the status of this rank for the heartbeat.
    """
    if not dist.is_initialized():
        raise InputError(
            "torch.distributed is not initialized",
            hint="Call torch.distributed.init_process_group first, on every rank.",
        )
    validated = validate(model, plan, options)
    compiled = compile_program(validated, options)
    connection = connect(validated, compiled, options)
    materialized = materialize(validated, compiled, connection, options)
    opened = open_transport(validated, compiled, connection, options)
    runners = build_stages(validated, compiled, materialized.blocks, connection.rank, opened.transport, options)
    return arm(validated, compiled, connection, materialized, opened, runners, loss, options, read_status)


def validate(model: nn.Module, plan: Plan, options: PipelineOptions) -> Validated:
    """Phase 1: find the layers of the model, and check that the plan has as many.

    Raises:
        InputError: The model is not a chain of blocks, or nothing fills its tensors on the meta device.
        MismatchError: The plan is for another number of layers.
    """
    check_materializable(model, options.init)
    blocks = find_blocks(model, options.blocks, options.inputs, torch.device(options.device))
    check_num_layers(plan, blocks)
    real = (item.device for block in blocks for item in block.parameters.values() if not item.is_meta)
    return Validated(model, plan, blocks, next(real, torch.device(options.device)))


def compile_program(validated: Validated, options: PipelineOptions) -> Compiled:
    """Phase 2: lower and prove the program of the plan, and lay the plan out on ranks.

    Raises:
        InputError: The plan cannot be trained as it is.
        ProofError: The program cannot run.
    """
    proof = compile_plan(validated.plan, validated.blocks, options.profile, options.cluster)
    layout = make_layout(proof.costs, validated.blocks)
    check_replica_sync(proof, layout)
    _log.debug("compiled %d actions for %d ranks", proof.program.num_actions, len(layout.devices))
    return Compiled(proof, layout)


def connect(validated: Validated, compiled: Compiled, options: PipelineOptions) -> Connection:
    """Phase 3: open the control group. Collective.

    Raises:
        InputError: There are too few ranks, or the backend does not send from the model's device.
        RunError: Another rank does not connect.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    check_num_ranks(compiled.layout, world)
    backend = select_backend(validated.device)
    with translate_errors(lambda: f"rank {rank}, connects to the other ranks"):
        control = open_control_group(options.timeout_s)
    _log.info("rank %d of %d connected; payloads use %s", rank, world, backend)
    return Connection(rank, world, backend, control)


def materialize(
    validated: Validated, compiled: Compiled, connection: Connection, options: PipelineOptions
) -> Materialized:
    """Phase 4: fill the tensors that this rank holds, and check that all ranks have the same inputs. Collective.

    Raises:
        PenstockError: On all ranks, if a rank cannot fill its tensors.
        MismatchError: Ranks have different plans, seeds or models.
    """
    model, layout, rank = validated.model, compiled.layout, connection.rank
    if validated.device.type == "cpu":
        keep_freed_memory()
    lacks_values = options.init == "checkpoint" and is_on_meta(model)
    blocks, error = materialize_held(
        validated.blocks, model, layout.stages, rank, seed=options.seed, device=validated.device, init=options.init
    )
    with translate_errors(lambda: f"rank {rank}, compares plan and model with the other ranks"):
        check_consistency(blocks, compiled.proof.program, options.seed, connection.control, error)
    return Materialized(blocks, lacks_values, SharedBufferCheck(model, blocks, layout.stages))


def open_transport(
    validated: Validated, compiled: Compiled, connection: Connection, options: PipelineOptions
) -> OpenTransport:
    """Phase 5: open the process groups and the transport. Collective.

    Raises:
        RunError: Another rank does not connect.
    """
    layout, device, timeout_s = compiled.layout, validated.device, options.timeout_s
    links = find_links(compiled.proof.program, layout.devices, SEND_KINDS)
    rings = [item.ranks for item in layout.reducers]
    with translate_errors(lambda: f"rank {connection.rank}, connects to the other ranks"):
        groups, reductions = open_process_groups(
            connection.control, connection.backend, links, rings, device=device, timeout_s=timeout_s
        )
        return OpenTransport(groups, reductions, TorchTransport(groups, device, timeout_s))


def build_stages(
    validated: Validated,
    compiled: Compiled,
    blocks: Sequence[Block],
    rank: int,
    transport: Transport,
    options: PipelineOptions,
) -> dict[int, TorchStage]:
    """Phase 6: build the stages whose forward or backward is on this rank.

    Args:
        validated: Result of phase 1.
        compiled: Result of phase 2.
        blocks: The layers with their values, as phase 4 returns them.
        rank: This rank.
        transport: Used by stages with several replicas, when they run.
        options: The options of the pipeline.
    """
    return {
        number: TorchStage(
            blocks[stage.start : stage.stop],
            stage.start,
            validated.model,
            seed=options.seed,
            is_split=len(stage.shares) > 1,
            device=validated.device,
            check_finite=options.check_finite,
            replica_sync=ReplicaSync(transport, is_expected=stage.needs_sync) if len(stage.shares) > 1 else None,
        )
        for number, stage in enumerate(compiled.layout.stages)
        if rank in (*stage.forward, *stage.backward)
    }


def arm(
    validated: Validated,
    compiled: Compiled,
    connection: Connection,
    materialized: Materialized,
    opened: OpenTransport,
    runners: Mapping[int, TorchStage],
    loss: Loss,
    options: PipelineOptions,
    read_status: Callable[[], RankStatus],
) -> RankParts:
    """Phase 7: build the executor and everything around it, release unused parameters, and start the heartbeat."""
    model, layout, program = validated.model, compiled.layout, compiled.proof.program
    rank, control, transport, blocks = connection.rank, connection.control, opened.transport, materialized.blocks
    owners = find_grad_owners(layout, blocks)
    grad_norm = GradNorm(
        {name: item for name, item in model.named_parameters() if name in owners}, owners, control, transport
    )
    entries = state_entries(model)
    release_unused(model, [block for runner in runners.values() for block in runner.blocks])
    routing = Routing(layout, rank)
    actions = list(program.actions(layout.devices[rank])) if rank < len(layout.devices) else []
    trained = trained_parameters(layout, rank, runners)
    by_stage = {number: list(runner.trained.values()) for number, runner in runners.items()}
    named = {name: item for runner in runners.values() for name, item in runner.trained.items()}
    reductions = {
        (item.is_tie, item.number): (group, [named[name] for name in item.parameters])
        for item, group in zip(layout.reducers, opened.reductions, strict=True)
        if rank in item.ranks
    }
    parts = ExecutorParts(
        routing=routing,
        actions=actions,
        runners=runners,
        loss=loss,
        transport=transport,
        reducer=GroupGradReducer(reductions, transport),
        weights=(weight_return := WeightReturn(actions, by_stage, trained.values(), transport, routing)),
        transfer=SavedTensorTransfer(),
        check_recompute=check_recompute,
        split=find_split_backwards(program, layout.devices),
    )
    pairs = batch_check_pairs(program, layout, connection.world, in_order=opened.groups.is_in_order)
    store = _get_default_store()
    batch_check = BatchShapeCheck(pairs, rank, transport, routing.num_tags, store, control.group_name)
    heartbeat = Heartbeat(control, layout.devices, read_status, transport.abandon)
    consensus = Consensus(transport, rank, connection.world, heartbeat.report_failure)
    state = RankState(model, entries, writers(entries, blocks, layout.stages), trained, validated.device)
    return RankParts(
        proof=compiled.proof,
        layout=layout,
        device=validated.device,
        rank=rank,
        control=control,
        transport=transport,
        runners=runners,
        executor=Executor(parts),
        evaluator=Evaluator(
            replace(parts, actions=select_forwards(actions), reducer=GroupGradReducer({}, transport), split=())
        ),
        weight_return=weight_return,
        losses=LossExchange(layout, rank, connection.world, transport),
        grad_norm=grad_norm,
        batch_check=batch_check,
        shared_buffers=materialized.shared_buffers,
        profile_drift=ProfileDrift(options.profile, blocks, layout.stages, rank),
        checkpoints=Checkpoints(state, consensus),
        heartbeat=heartbeat,
        lacks_values=materialized.lacks_values,
    )


def check_num_ranks(layout: Layout, num_ranks: int) -> None:
    """Check that there is a rank for every device of the plan.

    Raises:
        InputError: There are too few ranks.
    """
    num_devices = len(layout.devices)
    if num_ranks < num_devices:
        raise InputError(
            f"the plan uses {num_devices} devices, but there {'is' if num_ranks == 1 else 'are'} only "
            f"{show_count(num_ranks, 'rank')}",
            hint=f"Start {num_devices} ranks, or plan for fewer devices.",
        )


def trained_parameters(layout: Layout, rank: int, runners: Mapping[int, TorchStage]) -> dict[str, nn.Parameter]:
    """Return the parameters that a rank trains, by their names in the model, in the order of the model."""
    return {
        name: runners[number].trained[name]
        for number, stage in enumerate(layout.stages)
        if rank in stage.backward
        for name in runners[number].trained
    }


def forward_buffers(
    layout: Layout, rank: int, runners: Mapping[int, TorchStage], model: nn.Module
) -> dict[str, Tensor]:
    """Return the current buffers of the stages whose forward is on a rank, by their names in the model."""
    return {
        name: model.get_buffer(name)
        for number, stage in enumerate(layout.stages)
        if rank in stage.forward
        for block in runners[number].blocks
        for name in block.buffers
    }
