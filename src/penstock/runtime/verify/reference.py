"""The same training in one process: what every plan's numbers are compared with."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from penstock.model import Block
from penstock.runtime.rng import untouched
from penstock.runtime.stage import Loss, TorchStage, add_up, scaled
from penstock.runtime.tensors import count_rows, microbatch_rows, pack, some_rows


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
    whole = TorchStage(blocks, 0, model, seed=seed, is_split=False, device=device)
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
