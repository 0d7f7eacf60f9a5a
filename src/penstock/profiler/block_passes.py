"""Times the forward and backward passes of single blocks, and counts their bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward, get_gradient_edge, saved_tensors_hooks

from penstock.device import DeviceClock, Mark
from penstock.errors import InputError, PenstockError
from penstock.model import Activations, Block, as_leaves, bytes_of, map_tensors, needs_gradient, tensors_of
from penstock.profiler.clock import mark_now
from penstock.profiler.saved_storages import CheckpointedParts, Recomputed, note_in
from penstock.runtime.stage import NULL_CONTEXT, DeferredFunction, EnterLayer, Graph, Instrumentation, WeightGradQueue
from penstock.runtime.tensors import Rows

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


MarkSpan = tuple[Mark, Mark]
"""Begin and end of a pass."""
NO_TIME: MarkSpan = (0.0, 0.0)


class Passes(NamedTuple):
    """Seconds of one turn: a forward and a fused backward, then another forward with a split backward."""

    forward_s: float
    backward_s: float
    input_s: float
    weight_s: float


class Bytes(NamedTuple):
    """Bytes of the activations for the next block, of the tensors saved for the backward, and of checkpointed parts."""

    cut: int
    saved: int
    recomputed: Recomputed


class Forward(NamedTuple):
    """One forward pass: its input tensors and the leaves among them, its result and the outputs with a gradient."""

    span: MarkSpan
    inputs: list[Tensor]
    leaves: list[Tensor]
    activations: Activations
    outputs: tuple[Tensor, ...]
    graph: Graph


@dataclass(frozen=True, eq=False)
class BlockHarness:
    """A block with its input activations for some number of rows, run as a stage of the runtime runs it.

    Only the last block has a `loss`.
    """

    block: Block
    number: int
    activations: Activations
    inputs: Activations
    """The inputs of the model, for the same rows."""
    rows: int
    needs: tuple[bool, ...]
    """For each input tensor, whether it needs a gradient."""
    loss: Callable[[Activations], Tensor] | None
    device: torch.device
    instrumentation: Instrumentation | None
    """None if the runtime cannot run the block: then it runs as in plain torch."""
    obstacle: str = ""
    """Why the runtime cannot run the block, or not with a split backward."""

    @property
    def trained(self) -> list[Tensor]:
        """Parameters with `requires_grad`."""
        return [parameter for parameter in self.block.parameters.values() if parameter.requires_grad]

    def forward(self, queue: WeightGradQueue | None = None) -> Forward:
        """Run the forward as in training; for the last block, with the loss. Weight gradients go to the queue."""
        activations, leaves = as_leaves(map_tensors(lambda tensor: tensor.clone(), self.activations), self.needs)
        instrumentation, graph = self.instrumentation, Graph([], queue, [], [])
        intercepted: AbstractContextManager[EnterLayer | None] = NULL_CONTEXT
        if instrumentation is not None:
            intercepted = instrumentation.at_forward(graph, 0, Rows(0, self.rows))
        # A fresh copy of the structure, as in training: nothing is kept from an earlier pass.
        inputs = map_tensors(lambda tensor: tensor, self.inputs)
        with torch.enable_grad(), intercepted as enter_layer:
            started = mark_now(self.device)
            if enter_layer is not None:
                enter_layer(self.number)
            result = self.block.call(activations, inputs)
            if self.loss is not None:
                if enter_layer is not None:
                    enter_layer(self.number + 1)
                result = self.loss(result)
            span = started, mark_now(self.device)
        unique = {id(tensor): tensor for tensor in tensors_of(result) if tensor.requires_grad}
        return Forward(span, tensors_of(activations), leaves, result, tuple(unique.values()), graph)

    def backward(self, forward: Forward) -> MarkSpan:
        """Run the backward and return its span. Weight gradients accumulate, or go to the queue of the forward."""
        queue = forward.graph.queue
        if not forward.outputs:
            return NO_TIME
        edges = tuple(map(get_gradient_edge, forward.outputs))
        gradients = tuple(torch.ones_like(output) for output in forward.outputs)
        capture = NULL_CONTEXT if queue is None else queue.capture_grads(self.trained)
        intercepted = NULL_CONTEXT if self.instrumentation is None else self.instrumentation.at_backward(forward.graph)
        with torch.autocast(self.device.type, enabled=False), capture, intercepted:
            started = mark_now(self.device)
            # As the runtime does. torch.autograd.backward would run without the function mode of the instrumentation.
            _engine_run_backward(edges, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)
            return started, mark_now(self.device)

    def split_backward(self, forward: Forward, queue: WeightGradQueue) -> tuple[MarkSpan, MarkSpan]:
        """Run the backward to the inputs, then that to the parameters. Return begin and end of both.

        What the runtime cannot defer is part of the first. A backward that only defers takes no time.
        """
        only_defers = not forward.leaves and _only_defers(forward.outputs)
        of_inputs = self.backward(forward)
        has_deferred = len(queue) > 0
        with torch.autocast(self.device.type, enabled=False):
            started = mark_now(self.device)
            queue.run()
            of_weights = started, mark_now(self.device)
        return (NO_TIME if only_defers else of_inputs), (of_weights if has_deferred else NO_TIME)

    def bytes(self) -> Bytes:
        """Count the bytes of its activations and saved tensors.

        Saved tensors are all storages that autograd keeps, and the input; without parameters and their casts, which all
        micro-batches share, buffers, and the output activations, which count as the input of the next block.
        """
        note = note_in(set(map(id, self.block.parameters.values())))
        kept: dict[int, int] = {}
        with saved_tensors_hooks(partial(note, kept), lambda tensor: tensor):
            forward = self.forward()
        for tensor in forward.inputs:
            note(kept, tensor)
        outgoing = [] if self.loss else tensors_of(forward.activations)
        held = {tensor.untyped_storage().data_ptr() for tensor in forward.inputs}
        for tensor in tensors_of(self.inputs):
            # The batch stays on every rank, whether or not this block uses it.
            if tensor.untyped_storage().data_ptr() not in held:
                kept.pop(tensor.untyped_storage().data_ptr(), None)
        for tensor in (*self.block.parameters.values(), *self.block.buffers.values(), *outgoing):
            kept.pop(tensor.untyped_storage().data_ptr(), None)
        saved, cut = sum(kept.values()), bytes_of(outgoing)
        parts, always = CheckpointedParts(note), dict[int, int]()
        with parts.in_forward(), saved_tensors_hooks(partial(note, always), lambda tensor: tensor):
            again = self.forward()
        for tensor in (*again.inputs, *tensors_of(self.inputs), *self.block.buffers.values()):
            note(always, tensor)
        with parts.in_backward():
            self.backward(again)
        held = {tensor.untyped_storage().data_ptr() for tensor in self.block.parameters.values()}
        return Bytes(cut, saved, parts.recomputed(held | always.keys()))


def _only_defers(outputs: Sequence[Tensor]) -> bool:
    """Whether a graph holds nothing but functions that defer weight gradients."""
    waiting, seen = [output.grad_fn for output in outputs], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        is_deferred = issubclass(getattr(node, "_forward_cls", object), DeferredFunction)
        if not is_deferred and not hasattr(node, "variable"):
            return False
        waiting += [after for after, _ in node.next_functions]
    return True


def time_passes(harnesses: Sequence[BlockHarness]) -> list[Passes]:
    """Time every pass of every block once, in the order of training: all forwards, then all backwards.

    The caches are then in the same state as in training. A fused and a split backward have a forward each.
    """
    fused = _time_fused(harnesses)
    return [Passes(*one, *two) for one, two in zip(fused, _time_split(harnesses), strict=True)]


def _time_fused(harnesses: Sequence[BlockHarness]) -> list[tuple[float, float]]:
    """Return the seconds of the forward and of the backward of each block."""
    forwards = [harness.forward() for harness in harnesses]
    spans = []
    for harness in reversed(harnesses):
        # Its saved tensors are freed before the next block runs.
        forward = forwards.pop()
        spans.append((forward.span, harness.backward(forward)))
    return _seconds(harnesses[0].device, spans[::-1])


def _time_split(harnesses: Sequence[BlockHarness]) -> list[tuple[float, float]]:
    """Return the seconds of both parts of the split backward of each block."""
    queues = [None if harness.obstacle else WeightGradQueue() for harness in harnesses]
    forwards = [harness.forward(queue) for harness, queue in zip(harnesses, queues, strict=True)]
    spans = []
    for harness, queue in zip(reversed(harnesses), reversed(queues), strict=True):
        forward = forwards.pop()
        spans.append((harness.backward(forward), NO_TIME) if queue is None else harness.split_backward(forward, queue))
    return _seconds(harnesses[0].device, spans[::-1])


def _seconds(device: torch.device, pairs: Sequence[tuple[MarkSpan, MarkSpan]]) -> list[tuple[float, float]]:
    """The seconds of pairs of spans. An accelerator is waited for once, so that no pass is charged its drain."""
    times = DeviceClock(device).seconds([mark for pair in pairs for span in pair for mark in span])
    lasted = [end - begin for begin, end in zip(times[::2], times[1::2], strict=True)]
    return list(zip(lasted[::2], lasted[1::2], strict=True))


def instrument(model: nn.Module, blocks: Sequence[Block], device: torch.device) -> tuple[Instrumentation, ...]:
    """Return the instrumentation of each block as a stage."""
    return tuple(
        Instrumentation(
            model,
            [parameter for parameter in block.parameters.values() if parameter.requires_grad],
            seed=0,
            is_split=False,
            device=device,
            replica_sync=None,
        )
        for block in blocks
    )


def build_harnesses(
    blocks: Sequence[Block],
    instrumentations: Sequence[Instrumentation],
    inputs: Activations,
    rows: int,
    loss: Callable[[Activations], Tensor],
    device: torch.device,
) -> tuple[BlockHarness, ...]:
    """Run the model on these inputs and return every block with its input activations.

    Raises:
        InputError: The loss is not a scalar tensor, or depends on no trained parameter.
    """
    harnesses = []
    activations, needs = inputs, tuple(False for _ in tensors_of(inputs))
    for number, (block, instrumentation) in enumerate(zip(blocks, instrumentations, strict=True)):
        own_loss = loss if number == len(blocks) - 1 else None
        harness = BlockHarness(
            block, number, _detached(activations), inputs, rows, needs, own_loss, device, instrumentation
        )
        activations = harness.forward().activations
        needs = needs_gradient(activations)
        harnesses.append(harness)
    if not isinstance(activations, Tensor) or activations.numel() != 1:
        raise InputError(
            "the loss must be a tensor with one element, not "
            + (
                f"a tensor of shape {tuple(activations.shape)}"
                if isinstance(activations, Tensor)
                else f"a {type(activations).__name__}"
            ),
            hint="loss(output) or loss(output, targets) must return it.",
        )
    if not activations.requires_grad:
        hint = "Check requires_grad of the parameters."
        raise InputError("the loss does not depend on any trained parameter", hint=hint)
    return tuple(map(_with_obstacle, harnesses))


def _with_obstacle(harness: BlockHarness) -> BlockHarness:
    """Run both kinds of backward once: there the runtime learns what it intercepts, or refuses layers."""
    try:
        harness.backward(harness.forward())
    except PenstockError as error:
        return replace(harness, instrumentation=None, obstacle=error.what)
    queue = WeightGradQueue()
    try:
        harness.split_backward(harness.forward(queue), queue)
    except PenstockError as error:
        return replace(harness, obstacle=error.what)
    return harness


def _detached(activations: Activations) -> Any:
    return map_tensors(lambda tensor: tensor.detach().clone(), activations)
