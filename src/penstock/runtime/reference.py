"""The same training in one process: what every plan's numbers are compared with."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import Block
from penstock.runtime.carry import pack
from penstock.runtime.feeding import count_rows, some_rows
from penstock.runtime.rows import microbatch_rows
from penstock.runtime.stages import Stage
from penstock.runtime.streams import untouched

Loss = Callable[[Any, Any], Tensor]


def reference_step(
    model: nn.Module,
    blocks: Sequence[Block],
    num_microbatches: int,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    step: int = 0,
    seed: int = 0,
) -> Tensor:
    """Gradients of one iteration, added to what is there, and the loss: the mean over all rows.

    Micro-batch after micro-batch, each as one plain autograd graph.
    """
    device = next((item.device for block in blocks for item in block.parameters.values()), torch.device("cpu"))
    whole = Stage(blocks, 0, model, seed=seed, is_split=False, device=device)
    total_rows = count_rows(inputs, targets)
    parts = []
    with untouched(device):
        for rows in microbatch_rows(total_rows, num_microbatches):
            if not rows.num:
                continue
            given, _ = pack(some_rows(inputs, rows, device))
            finish = scaled(loss, some_rows(targets, rows, device), rows.num / total_rows)
            out, graph = whole.run(given, step, rows, finish, keep=True, defer=False)
            whole.backward(graph, graph.ones)
            parts.append(out.tensors[0])
    return add_up(parts)


def scaled(loss: Loss, targets: Any, portion: float) -> Callable[[Any], Tensor]:
    """What follows the last block: the loss of some rows, as their part of the mean over all rows."""

    def finish(output: Any) -> Tensor:
        found = loss(output, targets)
        if not isinstance(found, Tensor) or found.dim():
            shape = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"the loss gives {shape}", hint="It must give one number: the mean over its rows.")
        return found * portion

    return finish


def add_up(losses: Sequence[Tensor]) -> Tensor:
    """Losses of micro-batches, added in order."""
    total = losses[0].clone()
    for item in losses[1:]:
        total = total + item
    return total
