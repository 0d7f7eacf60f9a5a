"""Phases 3 to 5 of assembly, which are collective: the control group, equal inputs on all ranks, the transport."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch.distributed as dist

from penstock.device import identify, is_accelerator, warn_of_one_queue
from penstock.dist import translate_errors, tree_from
from penstock.errors import InputError
from penstock.model import Block, keep_freed_memory
from penstock.program import SEND_KINDS
from penstock.program.slices import ProgramSlice
from penstock.runtime.assembly.compilation import Compiled, Validated
from penstock.runtime.checks import SharedBufferCheck, batch_check_pairs, check_consistency, materialize_held
from penstock.runtime.layout import Layout, assign_ranks, check_kinds, find_links
from penstock.runtime.options import PipelineOptions
from penstock.runtime.precision import Conversion
from penstock.runtime.state import is_on_meta
from penstock.runtime.transport import (
    ProcessGroups,
    TorchTransport,
    connect_pairs,
    open_control_group,
    open_process_groups,
    select_backend,
)
from penstock.units import show_count

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Connection:
    """Result of phase 3."""

    rank: int
    world: int
    backend: str
    control: Any
    """The control group."""


def connect(validated: Validated, compiled: Compiled, options: PipelineOptions) -> Connection:
    """Phase 3: open the control group. Collective.

    Raises:
        InputError: There are too few ranks, or the backend does not send from the model's device.
        RunError: Another rank does not connect.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    check_num_ranks(compiled.layout, world)
    backend = select_backend(validated.device)
    warn_of_one_queue(validated.device)
    with translate_errors(lambda: f"rank {rank}, connects to the other ranks"):
        control = open_control_group(options.timeout_s)
    _log.info("rank %d of %d connected; payloads use %s", rank, world, backend)
    return Connection(rank, world, backend, control)


def assign_devices(
    validated: Validated, compiled: Compiled, connection: Connection, options: PipelineOptions
) -> Compiled:
    """Give each device of the plan the rank that has it. Collective.

    Without a cluster, rank k is the k-th device in use.

    Raises:
        MismatchError: The devices of the ranks are not those of the plan.
    """
    own = (identify(validated.device), options.accepts_cpu or options.any_kind)
    answers: list[Any] = [None] * connection.world
    with translate_errors(lambda: f"rank {connection.rank}, compares its device with the plan"):
        dist.all_gather_object(answers, own, group=connection.control)
    any_kind = any(accepts for _, accepts in answers)
    identities = [identity for identity, _ in answers]
    if options.cluster is None:
        check_kinds(() if any_kind else validated.plan.kinds, identities)
        return compiled
    known = {device.name: device for device in options.cluster.devices}
    devices = [known[name] for name in compiled.layout.devices]
    ranks = assign_ranks(devices, identities, any_kind=any_kind)
    return compiled.on_ranks(ranks)


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


@dataclass(frozen=True)
class Materialized:
    """Result of phase 4."""

    blocks: tuple[Block, ...]
    lacks_values: bool
    """Whether the values come with a checkpoint that is loaded later."""
    shared_buffers: SharedBufferCheck
    conversion: Conversion
    """The conversion of the model to the precision of training."""


def materialize(
    validated: Validated,
    compiled: Compiled,
    program: ProgramSlice,
    connection: Connection,
    options: PipelineOptions,
) -> Materialized:
    """Phase 4: fill the tensors that this rank holds, and check that all ranks have the same inputs. Collective.

    Then the model gets the precision of training.

    Raises:
        PenstockError: On all ranks, if a rank cannot fill its tensors.
        MismatchError: Ranks have different plans, seeds or models.
    """
    model, layout, rank = validated.model, compiled.layout, connection.rank
    if not is_accelerator(validated.device):
        keep_freed_memory()
    lacks_values = options.init == "checkpoint" and is_on_meta(model)
    blocks, error = materialize_held(
        validated.blocks, model, layout.stages, rank, seed=options.seed, device=validated.device, init=options.init
    )
    check_consistency(blocks, program, options.seed, connection.control, error)
    conversion = Conversion(model, options.training_precision)
    return Materialized(blocks, lacks_values, SharedBufferCheck(model, blocks, layout.stages), conversion)


@dataclass(frozen=True)
class OpenTransport:
    """Result of phase 5."""

    groups: ProcessGroups
    reductions: Sequence[Any]
    """The process group of each reduction of the layout."""
    transport: TorchTransport


def open_transport(
    validated: Validated,
    compiled: Compiled,
    program: ProgramSlice,
    connection: Connection,
    options: PipelineOptions,
) -> OpenTransport:
    """Phase 5: open the process groups and the transport. Collective.

    Raises:
        RunError: Another rank does not connect.
    """
    layout, device, timeout_s = compiled.layout, validated.device, options.timeout_s
    links = find_links(program, layout, SEND_KINDS)
    rings = [item.ranks for item in layout.reducers]
    with translate_errors(lambda: f"rank {connection.rank}, connects to the other ranks"):
        pairs = host_pairs(program, layout, connection.world)
        connect_pairs(connection.control, connection.rank, pairs, timeout_s)
        groups, reductions = open_process_groups(
            connection.control, connection.backend, links, rings, device=device, timeout_s=timeout_s
        )
        return OpenTransport(groups, reductions, TorchTransport(groups, device, timeout_s))


def host_pairs(program: ProgramSlice, layout: Layout, world: int) -> set[tuple[int, int]]:
    """Return the pairs of ranks that exchange messages through host memory."""
    synced = {
        pair
        for stage in layout.stages
        if stage.needs_sync
        for group in (stage.forward, stage.backward)
        for pair in combinations(group, 2)
    }
    compared = batch_check_pairs(program, layout, world, in_order=True)
    return find_links(program, layout, SEND_KINDS) | compared | synced | set(tree_from(0, world).edges())
