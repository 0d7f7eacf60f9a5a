"""Times the optimizer step of a layer."""

from typing import NamedTuple

import torch

from penstock.device import is_accelerator
from penstock.model import Block
from penstock.profiler.clock import seconds_now
from penstock.profiler.steadiness import deviation
from penstock.runtime.tensors import grad_dtype


class StepTime(NamedTuple):
    """Median seconds of optimizer steps, and their relative standard deviation."""

    seconds: float
    deviation: float


CACHE_BYTES = 1 << 26
"""More than the caches of a core hold: in training, the steps of all layers follow each other."""


def time_step(block: Block, device: torch.device, *, most_s: float = 0.2) -> StepTime:
    """Time AdamW steps on copies of the block's parameters, or on their master weights."""
    layers = [torch.zeros_like(item) for item in block.parameters.values() if item.requires_grad]
    types = [grad_dtype(item) for item in block.parameters.values() if item.requires_grad]
    copies = [torch.zeros_like(item, dtype=dtype) for item, dtype in zip(layers, types, strict=True)]
    if not copies:
        return StepTime(0.0, 0.0)
    has_masters = any(layer.dtype != copy.dtype for layer, copy in zip(layers, copies, strict=True))
    for copy in copies:
        copy.grad = torch.ones_like(copy)
    optimizer = torch.optim.AdamW(copies)
    optimizer.step()  # creates the optimizer state
    others = torch.zeros(0 if is_accelerator(device) else CACHE_BYTES // 4)
    took: list[float] = []
    while len(took) < 3 or (sum(took) < most_s and len(took) < 15):
        others.add_(1.0)  # evicts this layer from the caches
        started = seconds_now(device)
        optimizer.step()
        if has_masters:
            torch._foreach_copy_(layers, copies)
        took.append(seconds_now(device) - started)
    return StepTime(sorted(took)[len(took) // 2], deviation(took))
