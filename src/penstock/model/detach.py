"""Splitting autograd's graph between blocks: the inputs of a block become leaves of its own graph."""

from typing import Any

import torch
from torch import Tensor

from penstock.model.trees import map_tensors, tensors_of


def needs_gradient(activations: Any) -> tuple[bool, ...]:
    """Return, for each tensor that a block returned, whether the backward receives a gradient for it."""
    return tuple(tensor.requires_grad for tensor in tensors_of(activations))


def as_leaves(activations: Any, needs: tuple[bool, ...]) -> tuple[Any, list[Tensor]]:
    """Detach activations for a block with its own graph.

    Blocks may change their inputs in place, which torch does not allow for leaves: they get an alias with the same
    memory. A tensor that occurs twice is one leaf.

    Args:
        activations: The inputs of the block.
        needs: For each tensor, whether it needs a gradient.

    Returns:
        The activations for the block, and the leaves that receive gradients.
    """
    leaves: dict[int, Tensor] = {}
    aliases: dict[int, Tensor] = {}
    needed = iter(needs)

    def change(tensor: Tensor) -> Tensor:
        needs_grad = next(needed)
        key = id(tensor)
        if key not in aliases:
            leaf = tensor.detach()
            if needs_grad:
                leaves[key] = leaf.requires_grad_()
                leaf = _Alias.apply(leaf)  # type: ignore[no-untyped-call]
            aliases[key] = leaf
        return aliases[key]

    return map_tensors(change, activations), list(leaves.values())


class _Alias(torch.autograd.Function):
    """The identity, between a leaf and its users."""

    @staticmethod
    def forward(_ctx: Any, tensor: Tensor) -> Tensor:
        """Return the same memory, not as a view of a leaf."""
        return tensor.detach()

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        """Return the gradient unchanged."""
        return gradient
