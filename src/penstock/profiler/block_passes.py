"""Times the forward and backward passes of single blocks, and counts their bytes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from penstock.errors import InputError
from penstock.model import Activations, Block, as_leaves, bytes_of, map_tensors, needs_gradient, tensors_of
from penstock.model.tracing import Placeholder


class Passes(NamedTuple):
    """Seconds of one turn: a forward, a backward to the inputs, a backward to inputs and parameters."""

    forward_s: float
    input_s: float
    both_s: float


class Bytes(NamedTuple):
    """Bytes of the activations for the next block, and of the tensors saved for the backward."""

    cut: int
    saved: int


class Forward(NamedTuple):
    """One forward pass: its input tensors and the leaves among them, its result and the outputs with a gradient."""

    seconds: float
    inputs: list[Tensor]
    leaves: list[Tensor]
    activations: Activations
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class BlockHarness:
    """A block with its input activations for some number of rows. Only the last block has a `loss`."""

    block: Block
    activations: Activations
    inputs: Activations
    """The inputs of the model, for the same rows."""
    needs: tuple[bool, ...]
    """For each input tensor, whether it needs a gradient."""
    loss: Callable[[Activations], Tensor] | None
    device: torch.device

    @property
    def trained(self) -> list[Tensor]:
        """Parameters with `requires_grad`."""
        return [parameter for parameter in self.block.parameters.values() if parameter.requires_grad]

    def forward(self) -> Forward:
        """Run the forward as in training; for the last block, with the loss."""
        activations, leaves = as_leaves(map_tensors(lambda tensor: tensor.clone(), self.activations), self.needs)
        torch.clear_autocast_cache()  # otherwise weights cast in an earlier pass would be part of this graph
        with torch.enable_grad():
            # A fresh copy of the structure, as in training: nothing is kept from an earlier pass.
            inputs = map_tensors(lambda tensor: tensor, self.inputs)
            started = seconds_now(self.device)
            result = self.block.call(activations, inputs)
            if self.loss is not None:
                result = self.loss(result)
            seconds = seconds_now(self.device) - started
        unique = {id(tensor): tensor for tensor in tensors_of(result) if tensor.requires_grad}
        return Forward(seconds, tensors_of(activations), leaves, result, tuple(unique.values()))

    def backward(self, forward: Forward, *, inputs_only: bool) -> float:
        """Run the backward and return its seconds. Weight gradients accumulate, as in training."""
        targets = forward.leaves if inputs_only else [*forward.leaves, *self.trained]
        if not targets or not forward.outputs:
            return 0.0
        gradients = [torch.ones_like(output) for output in forward.outputs]
        started = seconds_now(self.device)
        torch.autograd.backward(forward.outputs, gradients, inputs=targets)
        return seconds_now(self.device) - started

    def bytes(self) -> Bytes:
        """Count the bytes of its activations and saved tensors.

        Saved tensors are all storages that autograd keeps, and the input; without parameters, buffers and the output
        activations, which count as the input of the next block.
        """
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if isinstance(tensor, Placeholder):
                return tensor  # a wrapper around a block that does not run saves the placeholders it was called with
            with torch._C.DisableTorchFunction():  # otherwise this call would count as an event of forward
                storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            forward = self.forward()
        for tensor in forward.inputs:
            note(tensor)
        outgoing = [] if self.loss else tensors_of(forward.activations)
        held = {tensor.untyped_storage().data_ptr() for tensor in forward.inputs}
        for tensor in tensors_of(self.inputs):
            # The batch stays on every rank, whether or not this block uses it.
            if tensor.untyped_storage().data_ptr() not in held:
                kept.pop(tensor.untyped_storage().data_ptr(), None)
        for tensor in (*self.block.parameters.values(), *self.block.buffers.values(), *outgoing):
            kept.pop(tensor.untyped_storage().data_ptr(), None)
        return Bytes(bytes_of(outgoing), sum(kept.values()))


def time_passes(harnesses: Sequence[BlockHarness]) -> list[Passes]:
    """Time every pass of every block once, in the order of training: all forwards, then all backwards.

    The caches are then in the same state as in training. Each of the two backward passes has its own forward.
    """
    plain = _forward_and_backward(harnesses, inputs_only=True)
    other = _forward_and_backward(harnesses, inputs_only=False)
    return [
        Passes((one[0] + two[0]) / 2, one[1], two[1] if harness.trained else one[1])
        for harness, one, two in zip(harnesses, plain, other, strict=True)
    ]


def _forward_and_backward(harnesses: Sequence[BlockHarness], *, inputs_only: bool) -> list[tuple[float, float]]:
    """Return the seconds of the forward and of the backward of each block."""
    forwards = [harness.forward() for harness in harnesses]
    times = []
    for harness in reversed(harnesses):
        # Its saved tensors are freed before the next block runs.
        forward = forwards.pop()
        times.append((forward.seconds, harness.backward(forward, inputs_only=inputs_only)))
    return times[::-1]


def seconds_now(device: torch.device) -> float:
    """Return the time after all work queued on the device has completed."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def build_harnesses(
    blocks: Sequence[Block], inputs: Activations, loss: Callable[[Activations], Tensor], device: torch.device
) -> tuple[BlockHarness, ...]:
    """Run the model on these inputs and return every block with its input activations.

    Raises:
        InputError: The loss is not a scalar tensor, or depends on no trained parameter.
    """
    harnesses = []
    activations, needs = inputs, tuple(False for _ in tensors_of(inputs))
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        harness = BlockHarness(block, _detached(activations), inputs, needs, loss if is_last else None, device)
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
    return tuple(harnesses)


def step_s(block: Block, device: torch.device, *, most_s: float = 0.2) -> float:
    """Return the median seconds of an AdamW step on copies of the block's parameters."""
    copies = [torch.zeros_like(parameter) for parameter in block.parameters.values() if parameter.requires_grad]
    if not copies:
        return 0.0
    for copy in copies:
        copy.grad = torch.ones_like(copy)
    optimizer = torch.optim.AdamW(copies)
    optimizer.step()  # creates the optimizer state
    took: list[float] = []
    while len(took) < 3 or (sum(took) < most_s and len(took) < 15):
        started = seconds_now(device)
        optimizer.step()
        took.append(seconds_now(device) - started)
    return sorted(took)[len(took) // 2]


def _detached(activations: Activations) -> Any:
    return map_tensors(lambda tensor: tensor.detach().clone(), activations)
