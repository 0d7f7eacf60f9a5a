"""A model as a chain of blocks that can run one at a time, in different processes.

Block 0 gets the model's inputs, block k what block k - 1 returned (its *carry*: any nesting of tensors, tuples, lists,
dicts, None and numbers), and what the last one returns is the model's output.

An `nn.Sequential` is its children. Of any other module the blocks are submodules, named in the order in which forward
calls them, or found (`model/block_detection.py`); they run by the model's own forward, entered in the middle
(`tracing/recorder.py` and `partial_forward.py` say how). That needs sample inputs, whose values do not matter.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from penstock.errors import InputError

Carry: TypeAlias = Any


class Block(NamedTuple):
    """One link of the chain: what a profile calls a unit."""

    name: str
    module: nn.Module
    call: Callable[[Carry], Carry]
    parameters: Mapping[str, nn.Parameter]
    """All that the block computes with, under the model's own names: those of its module, and those that the model's
    forward uses itself before the next block."""
    buffers: Mapping[str, Tensor]


def find_blocks(
    model: nn.Module,
    names: Sequence[str] | None = None,
    inputs: Carry = None,
    device: torch.device | None = None,
) -> tuple[Block, ...]:
    """The blocks of `model`: those of these `names`, or its children if it is an nn.Sequential, or found ones.

    The model is called with `inputs`: a tuple is its positional arguments, a dict its keyword arguments, all else its
    only argument (an nn.Sequential always has one). They are needed unless the blocks are an nn.Sequential's children.
    Where the model is on the meta device, they may be there too; `device` is where its blocks will run, if not there.
    The model is left as it was.
    """
    if names is None and is_plain_sequential(model):
        return _children(model)
    if inputs is None:
        raise InputError(
            f"{type(model).__name__} is not an nn.Sequential, so its blocks are found by running it once",
            hint="Give sample inputs (inputs=...), or an nn.Sequential.",
        )
    from penstock.model.block_finder import blocks_of

    return blocks_of(model, names, inputs, device)


def with_left_over(blocks: Sequence[Block], model: nn.Module) -> tuple[Block, ...]:
    """What no block computes with belongs to the last one, so that nothing is lost."""
    used = {name for block in blocks for name in (*block.parameters, *block.buffers)}
    last = blocks[-1]._replace(
        parameters={
            **blocks[-1].parameters,
            **{name: item for name, item in model.named_parameters() if name not in used},
        },
        buffers={**blocks[-1].buffers, **{name: item for name, item in model.named_buffers() if name not in used}},
    )
    return (*blocks[:-1], last)


def parameters_of(blocks: Sequence[Block]) -> tuple[dict[str, nn.Parameter], ...]:
    """The parameters of each block under the model's names; one that blocks share has the same name in each of them."""
    return tuple(dict(block.parameters) for block in blocks)


def shared_parameters(blocks: Sequence[Block]) -> dict[str, tuple[int, ...]]:
    """The tied ones: names of parameters that several blocks compute with, and the numbers of these blocks."""
    holders: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        for name in block.parameters:
            holders.setdefault(name, []).append(number)
    return {name: tuple(numbers) for name, numbers in holders.items() if len(numbers) > 1}


def is_plain_sequential(model: nn.Module) -> bool:
    """Whether the model does nothing but call its children in order, each with what the one before returned."""
    return isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward


def call_model(model: nn.Module, inputs: Carry) -> Carry:
    """What the model returns for `inputs`, passed as `find_blocks` says."""
    if is_plain_sequential(model):
        return model(inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def _children(model: nn.Module) -> tuple[Block, ...]:
    children = {
        name: child for name, child in model._modules.items() if child is not None
    }  # named_children skips twins
    if not children:
        raise InputError("the nn.Sequential is empty", hint="Give a model with at least one block.")
    parameter_names = {parameter: name for name, parameter in model.named_parameters()}
    buffer_names = {buffer: name for name, buffer in model.named_buffers()}
    blocks = tuple(
        Block(
            name=name,
            module=child,
            call=child,
            parameters={parameter_names[parameter]: parameter for parameter in child.parameters()},
            buffers={buffer_names[buffer]: buffer for buffer in child.buffers()},
        )
        for name, child in children.items()
    )
    return with_left_over(blocks, model)
