"""What a rank holds of a model: it lets go of the rest, after a check that all ranks were given the same."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import MismatchError
from penstock.model.blocks import Block
from penstock.program.types import Program, encode_program


def check_same(blocks: Sequence[Block], program: Program, seed: int, group: Any) -> None:
    """Refuse ranks that were given different things: they would wait for each other, or train different models."""
    mine: dict[str, tuple[Any, ...]] = {
        "the plan": (program.plan.digest,),
        "the order of its jobs": (hashlib.blake2b(encode_program(program)).hexdigest(),),
        "the seed": (seed,),
    }
    mine |= {name: _mark(item) for block in blocks for name, item in block.parameters.items()}
    everybody: list[dict[str, tuple[Any, ...]]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(everybody, mine, group=group)
    for rank, theirs in enumerate(everybody):
        if theirs == everybody[0]:
            continue
        name = next((name for name in theirs if theirs[name] != everybody[0].get(name)), "one of its blocks")
        raise MismatchError(
            f"rank {rank} was not given the same as rank 0: they differ in {name}",
            hint="Give every rank the same plan, and call torch.manual_seed alike before the model is made.",
        )


def _mark(item: Tensor) -> tuple[Any, ...]:
    """Shape, type, and two sums that hardly agree by chance."""
    values = item.detach().reshape(-1).to(torch.float64)
    spread = torch.cos(torch.arange(values.numel(), dtype=torch.float64, device=values.device))
    return tuple(item.shape), str(item.dtype), item.requires_grad, float(values.sum()), float(values @ spread)


def let_go(model: nn.Module, kept: Iterable[Block]) -> None:
    """Put all parameters and buffers that no kept block has on the meta device, where they take no memory."""
    held = {id(item) for block in kept for item in (*block.parameters.values(), *block.buffers.values())}
    empty: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in held:
                if id(parameter) not in empty:
                    meta = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
                    empty[id(parameter)] = meta
                module._parameters[name] = empty[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and id(buffer) not in held:
                module._buffers[name] = buffer.to("meta")
