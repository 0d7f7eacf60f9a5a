"""Consistency of the ranks when a pipeline is created, and the part of the model that a rank keeps."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import translate_errors
from penstock.errors import MismatchError, PenstockError
from penstock.model import Block
from penstock.program.slices import ProgramSlice
from penstock.runtime.checks.tensor_digest import digest_values
from penstock.runtime.layout import StageView
from penstock.runtime.state import Init, Pretrained, is_on_meta, materialize_tensors


class _Digest(NamedTuple):
    """Shape and type of a tensor, and a digest of its values. Meta tensors have no values."""

    shape: tuple[Any, ...]
    values: tuple[int, int] | None = None


def check_consistency(
    blocks: Sequence[Block], program: ProgramSlice, seed: int, group: Any, failed: PenstockError | None = None
) -> None:
    """Check that all ranks have the same plan, order of actions, seed and model.

    Otherwise ranks would wait for each other forever, or train different models. Parameters and buffers are compared
    where they have values.

    Args:
        blocks: The blocks of the model.
        program: The slice of this rank.
        seed: Seed of the random numbers.
        group: The control group.
        failed: An error of this rank. If any rank has one, all ranks raise it.

    Raises:
        MismatchError: Two ranks disagree.
    """
    own = {
        "the plan": _Digest((program.plan,)),
        "the order of its actions": _Digest((program.program,)),
        "the seed": _Digest((seed,)),
    }
    if failed is None:
        tensors = [item for block in blocks for item in (*block.parameters.items(), *block.buffers.items())]
        own |= {name: _digest(item) for name, item in tensors}
    gathered: list[Any] = [None] * dist.get_world_size(group)
    with translate_errors(lambda: f"rank {dist.get_rank(group)}, compares plan and model with the other ranks"):
        dist.all_gather_object(gathered, (failed, own), group=group)
    for error, _ in gathered:
        if error is not None:
            raise error
    known: dict[str, _Digest] = dict(gathered[0][1])
    for rank, (_, digests) in enumerate(gathered):
        name = next((name for name in digests if _differ(digests[name], known.get(name))), None)
        if name is None and digests.keys() != known.keys():
            name = "the blocks of the model"
        if name is not None:
            raise MismatchError(
                f"rank 0 and rank {rank} disagree on {name}",
                hint="Use the same plan on every rank, and call torch.manual_seed with the same seed before creating "
                "the model.",
            )
        known |= {name: digest for name, digest in digests.items() if digest.values is not None}


def _digest(item: Tensor) -> _Digest:
    shape = (tuple(item.shape), str(item.dtype), item.requires_grad)
    if item.is_meta:
        return _Digest(shape)
    return _Digest(shape, digest_values(item))


def _differ(one: _Digest, other: _Digest | None) -> bool:
    if other is None or one.shape != other.shape:
        return True
    return one.values is not None and other.values is not None and one.values != other.values


def materialize_held(
    blocks: tuple[Block, ...],
    model: nn.Module,
    stages: Sequence[StageView],
    rank: int,
    *,
    seed: int,
    device: torch.device,
    init: Init | None,
) -> tuple[tuple[Block, ...], PenstockError | None]:
    """Materialize the tensors of a meta-device model that this rank needs, and read those of pretrained weights.

    Returns:
        The blocks with the materialized tensors, and the error if that failed.
    """
    if not is_on_meta(model) and not isinstance(init, Pretrained):
        return blocks, None
    held = [
        block
        for stage in stages
        if rank in (*stage.forward, *stage.backward)
        for block in blocks[stage.start : stage.stop]
    ]
    names = {name for block in held for name in (*block.parameters, *block.buffers)}
    try:
        materialize_tensors(model, names, seed=seed, device=device, init=init)
    except PenstockError as error:
        return blocks, error
    if isinstance(init, Pretrained):
        # Tensors on a real device that this rank does not hold keep other values than those of the files.
        release_unused(model, [_current(block, model) for block in held])
    return tuple(_current(block, model) for block in blocks), None


def _current(block: Block, model: nn.Module) -> Block:
    """The block with the tensors that the model has now."""
    return block._replace(
        parameters={name: model.get_parameter(name) for name in block.parameters},
        buffers={name: model.get_buffer(name) for name in block.buffers},
    )


def release_unused(model: nn.Module, kept: Iterable[Block]) -> None:
    """Move all parameters and buffers that no kept block uses to the meta device, which frees their memory."""
    held = {id(item) for block in kept for item in (*block.parameters.values(), *block.buffers.values())}
    replaced: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in held:
                if id(parameter) not in replaced:
                    meta = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
                    replaced[id(parameter)] = meta
                module._parameters[name] = replaced[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and id(buffer) not in held:
                module._buffers[name] = buffer.to("meta")
