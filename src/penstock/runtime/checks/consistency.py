"""What a rank holds of a model: it lets go of the rest, after a check that all ranks were given the same."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import MismatchError, PenstockError
from penstock.model import Block
from penstock.program import Program, encode_program
from penstock.runtime.layout import StageView
from penstock.runtime.state import Init, is_on_meta, make_real


class _Mark(NamedTuple):
    """A tensor in short: its form, and two sums of its values that hardly agree by chance, where it has values."""

    form: tuple[Any, ...]
    sums: tuple[str, str] | None = None


def check_same(
    blocks: Sequence[Block], program: Program, seed: int, group: Any, failed: PenstockError | None = None
) -> None:
    """Refuse ranks that were given different things: they would wait for each other, or train different models.

    If something has `failed` on a rank, all raise it. Parameters and buffers are compared where they are held.
    """
    mine = {
        "the plan": _Mark((program.plan.digest,)),
        "the order of its jobs": _Mark((hashlib.blake2b(encode_program(program)).hexdigest(),)),
        "the seed": _Mark((seed,)),
    }
    if failed is None:
        held = [item for block in blocks for item in (*block.parameters.items(), *block.buffers.items())]
        mine |= {name: _mark(item) for name, item in held}
    everybody: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybody, (failed, mine), group=group)
    for error, _ in everybody:
        if error is not None:
            raise error
    known: dict[str, _Mark] = dict(everybody[0][1])
    for rank, (_, theirs) in enumerate(everybody):
        name = next((name for name in theirs if _differ(theirs[name], known.get(name))), None)
        if name is None and theirs.keys() != known.keys():
            name = "one of its blocks"
        if name is not None:
            raise MismatchError(
                f"rank {rank} was not given the same as rank 0: they differ in {name}",
                hint="Give every rank the same plan, and call torch.manual_seed alike before the model is made.",
            )
        known |= {name: mark for name, mark in theirs.items() if mark.sums is not None}


def _mark(item: Tensor) -> _Mark:
    form = (tuple(item.shape), str(item.dtype), item.requires_grad)
    if item.is_meta:
        return _Mark(form)
    plain = torch.view_as_real(item.detach().resolve_conj()) if item.is_complex() else item.detach()
    values = plain.reshape(-1).to(torch.float64)
    spread = torch.cos(torch.arange(values.numel(), dtype=torch.float64, device=values.device))
    # As text, so that values that are not numbers yet, before a checkpoint is loaded, are the same everywhere.
    return _Mark(form, (repr(float(values.sum())), repr(float(values @ spread))))


def _differ(one: _Mark, other: _Mark | None) -> bool:
    if other is None or one.form != other.form:
        return True
    return one.sums is not None and other.sums is not None and one.sums != other.sums


def make_held(
    blocks: tuple[Block, ...],
    model: nn.Module,
    stages: Sequence[StageView],
    rank: int,
    *,
    seed: int,
    device: torch.device,
    init: Init | None,
) -> tuple[tuple[Block, ...], PenstockError | None]:
    """Make real what this rank needs of a model on the meta device: the blocks with it, and what went wrong."""
    if not is_on_meta(model):
        return blocks, None
    wanted = {
        name
        for stage in stages
        if rank in (*stage.forward, *stage.backward)
        for block in blocks[stage.start : stage.stop]
        for name in (*block.parameters, *block.buffers)
    }
    try:
        make_real(model, wanted, seed=seed, device=device, init=init)
    except PenstockError as error:
        return blocks, error
    made = tuple(
        block._replace(
            parameters={name: model.get_parameter(name) for name in block.parameters},
            buffers={name: model.get_buffer(name) for name in block.buffers},
        )
        for block in blocks
    )
    return made, None


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
