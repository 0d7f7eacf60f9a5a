"""One block on its own: its forward and backward passes timed, and its bytes counted."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from penstock.errors import InputError
from penstock.model import Block, Carry, as_leaves, bytes_of, map_tensors, needs_gradient, tensors_of
from penstock.model.tracing import Placeholder


class Passes(NamedTuple):
    """Seconds of one turn: a forward; a backward to the inputs; a backward to inputs and parameters."""

    forward_s: float
    input_s: float
    both_s: float


class Bytes(NamedTuple):
    """What crosses to the next block, and what is kept for the backward."""

    cut: int
    saved: int


class Forward(NamedTuple):
    """One forward pass: the tensors that went in, and the leaves among them; what came out, and what has a gradient."""

    seconds: float
    given: list[Tensor]
    leaves: list[Tensor]
    carry: Carry
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Stand:
    """A block with the carry that it gets for some number of rows. `loss` is there for the last block only."""

    block: Block
    carry: Carry
    needs: tuple[bool, ...]
    """For each tensor of the carry, whether it wants a gradient."""
    loss: Callable[[Carry], Tensor] | None
    device: torch.device

    @property
    def trained(self) -> list[Tensor]:
        """Its parameters that are trained."""
        return [parameter for parameter in self.block.parameters.values() if parameter.requires_grad]

    def forward(self) -> Forward:
        """The forward pass, as in training; for the last block, the loss with it."""
        carry, leaves = as_leaves(map_tensors(lambda tensor: tensor.clone(), self.carry), self.needs)
        torch.clear_autocast_cache()  # else a weight cast in an earlier pass would be part of this one's graph
        with torch.enable_grad():
            started = seconds_now(self.device)
            result = self.block.call(carry)
            if self.loss is not None:
                result = self.loss(result)
            seconds = seconds_now(self.device) - started
        unique = {id(tensor): tensor for tensor in tensors_of(result) if tensor.requires_grad}
        return Forward(seconds, tensors_of(carry), leaves, result, tuple(unique.values()))

    def backward(self, forward: Forward, *, inputs_only: bool) -> float:
        """Seconds of the way back. Weight gradients are added to those of earlier passes, as in training."""
        targets = forward.leaves if inputs_only else [*forward.leaves, *self.trained]
        if not targets or not forward.outputs:
            return 0.0
        gradients = [torch.ones_like(output) for output in forward.outputs]
        started = seconds_now(self.device)
        torch.autograd.backward(forward.outputs, gradients, inputs=targets)
        return seconds_now(self.device) - started

    def bytes(self) -> Bytes:
        """The bytes of its tensors.

        Saved is every piece of memory that autograd keeps, and the input; not parameters and buffers, and not what is
        handed on, since that is the next block's input.
        """
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            if isinstance(tensor, Placeholder):
                return tensor  # something that wraps a block keeps what it was called with, though it does not run
            with torch._C.DisableTorchFunction():  # else this would pass for something that forward does
                storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with saved_tensors_hooks(note, lambda tensor: tensor):
            forward = self.forward()
        for tensor in forward.given:
            note(tensor)
        handed_on = [] if self.loss else tensors_of(forward.carry)
        for tensor in (*self.block.parameters.values(), *self.block.buffers.values(), *handed_on):
            kept.pop(tensor.untyped_storage().data_ptr(), None)
        return Bytes(bytes_of(handed_on), sum(kept.values()))


def take_turns(stands: Sequence[Stand]) -> list[Passes]:
    """Every pass of every block once, in the order of training: all forwards, then all backwards.

    So what a block needs has been used as long ago as in training, and is found in the same caches. Each of the two
    backward passes has its own forward.
    """
    plain = _there_and_back(stands, inputs_only=True)
    other = _there_and_back(stands, inputs_only=False)
    return [
        Passes((one[0] + two[0]) / 2, one[1], two[1] if stand.trained else one[1])
        for stand, one, two in zip(stands, plain, other, strict=True)
    ]


def _there_and_back(stands: Sequence[Stand], *, inputs_only: bool) -> list[tuple[float, float]]:
    """For each block the seconds of its forward and of its backward."""
    forwards = [stand.forward() for stand in stands]
    found = []
    for stand in reversed(stands):
        # What it has saved goes with it, before the next one's turn.
        forward = forwards.pop()
        found.append((forward.seconds, stand.backward(forward, inputs_only=inputs_only)))
    return found[::-1]


def seconds_now(device: torch.device) -> float:
    """The time, when the device has done all that it was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def set_up(
    blocks: Sequence[Block], inputs: Carry, loss: Callable[[Carry], Tensor], device: torch.device
) -> tuple[Stand, ...]:
    """Every block with what it gets when the model runs on these inputs."""
    stands = []
    carry, needs = inputs, tuple(False for _ in tensors_of(inputs))
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        stand = Stand(block, _detached(carry), needs, loss if is_last else None, device)
        carry = stand.forward().carry
        needs = needs_gradient(carry)
        stands.append(stand)
    if not isinstance(carry, Tensor) or carry.numel() != 1:
        raise InputError(
            "the loss must be a tensor with one number, but is "
            + (f"a tensor of shape {tuple(carry.shape)}" if isinstance(carry, Tensor) else f"a {type(carry).__name__}"),
            hint="loss(output) or loss(output, targets) must return it.",
        )
    if not carry.requires_grad:
        raise InputError("the loss depends on no parameter that is trained", hint="Is requires_grad off everywhere?")
    return tuple(stands)


def step_s(block: Block, device: torch.device, *, most_s: float = 0.2) -> float:
    """Seconds of AdamW's step for the parameters of a block, tried on copies: the median of a few."""
    copies = [torch.zeros_like(parameter) for parameter in block.parameters.values() if parameter.requires_grad]
    if not copies:
        return 0.0
    for copy in copies:
        copy.grad = torch.ones_like(copy)
    optimizer = torch.optim.AdamW(copies)
    optimizer.step()  # makes its state
    took: list[float] = []
    while len(took) < 3 or (sum(took) < most_s and len(took) < 15):
        started = seconds_now(device)
        optimizer.step()
        took.append(seconds_now(device) - started)
    return sorted(took)[len(took) // 2]


def _detached(carry: Carry) -> Any:
    return map_tensors(lambda tensor: tensor.detach().clone(), carry)
