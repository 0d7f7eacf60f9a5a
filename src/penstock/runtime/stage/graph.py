"""The autograd graph of one forward of a stage, from its input tensors to its output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from penstock.runtime.rng import RowRng
from penstock.runtime.stage.wgrad_queue import WeightGradQueue
from penstock.runtime.tensors import PackedPayload

_ANCHOR = torch.empty(0, requires_grad=True)
"""Makes autograd track the input tensors of a stage. It never gets a gradient."""
Replay = Callable[[Sequence[Tensor | None]], tuple[list[Tensor | None], WeightGradQueue | None]]


@dataclass(eq=False)
class Graph:
    """The autograd graph of one forward, kept for its backward."""

    outputs: list[GradientEdge]
    """The gradient edges of all output tensors that require a gradient."""
    queue: WeightGradQueue | None
    """The deferred weight gradients, if the backward is split."""
    needs_grad: list[bool]
    """Which input tensors need a gradient."""
    loss_grads: list[Tensor]
    """For a graph that ends in the loss: the initial gradients."""
    rng: RowRng | None = None
    """The random numbers of the forward, if any are drawn row by row."""
    input_grads: list[Tensor | None] = field(default_factory=list)
    """The captured gradients of the inputs."""
    retain: bool = False
    """Whether the backward runs more than once."""
    replay: Replay | None = None
    """For a remote backward: runs the backward of an equal graph on this rank."""

    def release(self) -> None:
        """Break the reference cycle of a graph without backward. The garbage collector does not see it."""
        self.outputs = []


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensors: list[Tensor], graph: Graph) -> Any:  # noqa: ARG004
        ctx.graph = graph
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        ctx.graph.input_grads = list(grads)
        return None, None, None


def attach_inputs(inputs: PackedPayload, graph: Graph) -> list[Tensor]:
    """The input tensors, attached to the graph where they need gradients."""
    tracked = [tensor for tensor, need in zip(inputs.tensors, inputs.needs_grad, strict=True) if need]
    if not tracked:
        return list(inputs.tensors)
    attached = iter(_Enter.apply(_ANCHOR, tracked, graph))  # type: ignore[no-untyped-call]
    return [next(attached) if need else tensor for tensor, need in zip(inputs.tensors, inputs.needs_grad, strict=True)]
