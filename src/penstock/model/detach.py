"""Cutting autograd's graph between blocks: what a block gets as leaves of its own graph."""

from typing import Any

import torch
from torch import Tensor

from penstock.model.trees import map_tensors, tensors_of


def needs_gradient(carry: Any) -> tuple[bool, ...]:
    """For each tensor of what a block returned, whether its backward will be handed a gradient for it."""
    return tuple(tensor.requires_grad for tensor in tensors_of(carry))


def as_leaves(carry: Any, needs: tuple[bool, ...]) -> tuple[Any, list[Tensor]]:
    """The carry for a block with a graph of its own, and those of its tensors that will get a gradient.

    Blocks may change in place what they get, which torch allows for no leaf: they get a stand-in with the same memory.
    A tensor that is in the carry twice is one leaf.
    """
    leaves: dict[int, Tensor] = {}
    stand_ins: dict[int, Tensor] = {}
    wanted = iter(needs)

    def change(tensor: Tensor) -> Tensor:
        wants = next(wanted)
        key = id(tensor)
        if key not in stand_ins:
            leaf = tensor.detach()
            if wants:
                leaves[key] = leaf.requires_grad_()
                leaf = _StandIn.apply(leaf)  # type: ignore[no-untyped-call]
            stand_ins[key] = leaf
        return stand_ins[key]

    return map_tensors(change, carry), list(leaves.values())


class _StandIn(torch.autograd.Function):
    """Nothing, between a leaf and those who use it."""

    @staticmethod
    def forward(_ctx: Any, tensor: Tensor) -> Tensor:
        """The same memory, and no view of a leaf."""
        return tensor.detach()

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient as it comes."""
        return gradient
