"""What the layers of a model require of a plan, found as the runtime finds it: by the same functions, on sample rows.

Each layer runs once more as a stage with several replicas would run it, and where it has buffers also as a stage that
is recomputed. What the runtime refuses there becomes a restriction. A layer that does so only on other inputs, or only
later in training, is not found; the runtime refuses it then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import torch
from torch import Tensor, nn

from penstock.errors import PenstockError
from penstock.model import Block, as_leaves, map_tensors, preserve_state, tensors_of
from penstock.profile import Restriction, Rule
from penstock.profiler.block_passes import BlockHarness
from penstock.runtime.checks import BufferChanges, shared_buffers
from penstock.runtime.layout import compiled_over_rows, sums_over_rows
from penstock.runtime.remote_backward import SavedTensorTransfer
from penstock.runtime.stage import Instrumentation, ReplicaSync, StageJob, TorchStage
from penstock.runtime.tensors import Rows, pack


def find_restrictions(
    model: nn.Module, blocks: Sequence[Block], harnesses: Sequence[Sequence[BlockHarness]]
) -> tuple[Restriction, ...]:
    """Find the restrictions of the layers.

    Args:
        model: The model. Its state is preserved.
        blocks: Its layers.
        harnesses: For each micro-batch size, the harness of every layer.
    """
    with preserve_state(model):
        shared = shared_buffers(blocks)
        changes = BufferChanges(model, tuple(shared))
        changes.begin()
        for harness in harnesses[0]:
            harness.forward()
        changed = changes.changed()
    by_units: dict[tuple[int, ...], str] = {}
    for name in changed:
        by_units.setdefault(shared[name], name)
    together = [
        Restriction(rule="one_stage", units=units, reason=f"they share buffer {name!r}, which changes in training")
        for units, name in by_units.items()
    ]
    found = [
        (rule, reason, unit)
        for unit, block in enumerate(blocks)
        for rule, reason in _requirements(model, block, [size[unit] for size in harnesses])
    ]
    if any(rule == "no_recompute" for rule, _, _ in found):
        # Where nothing else forbids a recompute, the runtime falls back to it.
        reasons = ((_obstacle_to_transfer(model, harness), unit) for unit, harness in enumerate(harnesses[0]))
        found += [("no_transfer", reason, unit) for reason, unit in reasons if reason]
    found.sort(key=lambda item: item[:2])
    alone = [
        Restriction(rule=rule, units=tuple(unit for _, _, unit in group), reason=reason)
        for (rule, reason), group in groupby(found, key=lambda item: item[:2])
    ]
    return (*alone, *together)


def _requirements(model: nn.Module, block: Block, harnesses: Sequence[BlockHarness]) -> Iterator[tuple[Rule, str]]:
    """The rules of one layer, with the reason of each."""
    syncs = sums_over_rows(block)
    if syncs:
        yield "sync_replicas", "batch norm normalizes over all rows of a micro-batch"
    compiled = compiled_over_rows(block)
    if compiled is not None:
        yield "one_replica", f"it is compiled (torch.compile) and contains {type(compiled).__name__}"
    if harnesses[0].instrumentation is None:
        return  # the runtime cannot run the layer at all; an assumption of the profile says so
    if harnesses[0].obstacle:
        yield "fused_backward", harnesses[0].obstacle
    with preserve_state(model):
        reason = next(filter(None, (_obstacle_to_replicas(model, item, syncs=syncs) for item in harnesses)), "")
    if reason and compiled is None:
        yield "one_replica", reason
    is_last = harnesses[0].loss is not None
    reason = "" if is_last else _obstacle_to_other_replicas(model, harnesses)
    if reason:
        yield "same_replicas", reason
    if block.buffers and _changes_own_output(model, harnesses[0]):
        yield "no_recompute", "it reads buffers that it changes"


def _obstacle_to_replicas(model: nn.Module, harness: BlockHarness, *, syncs: bool) -> str:
    """Why the layer cannot run in a stage with several replicas; empty if it can."""
    instrumentation = Instrumentation(
        model,
        harness.trained,
        seed=0,
        is_split=True,
        device=harness.device,
        replica_sync=ReplicaSync(None, is_expected=syncs),
    )
    trial = replace(harness, instrumentation=instrumentation)
    try:
        trial.backward(trial.forward())
    except PenstockError as error:
        return error.what
    return ""


def _obstacle_to_transfer(model: nn.Module, harness: BlockHarness) -> str:
    """Why the saved tensors of the layer cannot be sent to the rank of its backward; empty if they can."""
    if harness.instrumentation is None:
        return harness.obstacle
    runner = TorchStage([harness.block], harness.number, model, seed=0, is_split=False, device=harness.device)
    activations, _ = as_leaves(map_tensors(lambda tensor: tensor.clone(), harness.activations), harness.needs)
    rows = Rows(0, harness.rows)
    job = StageJob(harness.number, 0, rows, harness.loss, False, None, tensors_of(harness.inputs))
    with preserve_state(model), runner.given(harness.inputs):
        return SavedTensorTransfer().reason(runner, pack(activations)[0], job)


def _obstacle_to_other_replicas(model: nn.Module, harnesses: Sequence[BlockHarness]) -> str:
    """Why the tensors after the layer cannot be divided by rows; empty if they can."""
    packed = []
    for harness in harnesses:
        with preserve_state(model):
            packed.append(pack(harness.forward().activations)[0])
        for tensor in packed[-1].tensors:
            if tensor.dim() == 0 or tensor.shape[0] != harness.rows:
                return f"a tensor has the shape {tuple(tensor.shape)} for {harness.rows} rows"
    first = packed[0]
    if any((item.tree, item.slots, item.values) != (first.tree, first.slots, first.values) for item in packed):
        return "values that are not tensors depend on the number of rows"
    return ""


def _changes_own_output(model: nn.Module, harness: BlockHarness) -> bool:
    """Whether the forward gives another output when it is repeated, because it reads buffers that it changes."""

    def repeated() -> list[Tensor]:
        with preserve_state(model):
            return [tensor.detach().clone() for tensor in tensors_of(harness.forward().activations)]

    with preserve_state(model):
        versions = [buffer._version for buffer in harness.block.buffers.values()]
        first = [tensor.detach().clone() for tensor in tensors_of(harness.forward().activations)]
        if versions == [buffer._version for buffer in harness.block.buffers.values()]:
            return False
        second = repeated()
        # A forward that gives another output each time is not deterministic, which has nothing to do with buffers.
        return not _are_same(first, second) and _are_same(second, repeated())


def _are_same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )
