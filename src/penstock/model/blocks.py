"""A model as a chain of blocks that run one at a time, possibly in different processes.

The input of block 0 is the model's input; the input of block k is the output of block k - 1, its *activations*: any
nesting of tensors, tuples, lists, dicts, None and numbers. The output of the last block is the model's output.

The blocks of an `nn.Sequential` are its children. The blocks of any other module are submodules, named in the order in
which forward calls them, or detected (`block_detection.py`). They run by the model's own forward, entered in the middle
(`tracing/recorder.py` and `block_forward/`). That requires sample inputs, whose values do not matter.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.requirements import require_own_forward
from penstock.model.trees import plain_inputs

Activations: TypeAlias = Any


class Block(NamedTuple):
    """One block of the chain; a layer of the profile.

    Attributes:
        name: Name of the submodule, with a number if forward calls it several times.
        module: The submodule.
        call: Runs the block: activations and the inputs of the model in, activations out.
        parameters: All parameters that the block computes with, by the model's names: those of its module, and those
            that the model's forward uses itself before the next block.
        buffers: All buffers of the block, by the model's names.
        needs_inputs: Whether `call` uses the inputs of the model, for the same rows as the activations.
    """

    name: str
    module: nn.Module
    call: Callable[..., Activations]
    parameters: Mapping[str, nn.Parameter]
    buffers: Mapping[str, Tensor]
    needs_inputs: bool = False


def find_blocks(
    model: nn.Module,
    names: Sequence[str] | None = None,
    inputs: Activations = None,
    device: torch.device | None = None,
) -> tuple[Block, ...]:
    """Split a model into blocks. The model is not changed.

    Args:
        model: The model.
        names: Names of the blocks, in the order in which forward calls them. None: the children of an nn.Sequential,
            else detected.
        inputs: Sample inputs. A tuple is the positional arguments of the model, a dict its keyword arguments,
            anything else its only argument (an nn.Sequential always has one). Required unless the blocks are the
            children of an nn.Sequential.
        device: Device on which the blocks of a model on the meta device will run.

    Raises:
        InputError: The whole model is compiled, inputs are missing, a name is unknown, or forward cannot be split at
            these blocks.
    """
    require_own_forward(model)
    if names is None and is_plain_sequential(model):
        return _children(model)
    if inputs is None:
        raise InputError(
            f"{type(model).__name__} is not an nn.Sequential: detecting its blocks requires sample inputs",
            hint="Pass inputs=..., or an nn.Sequential.",
        )
    from penstock.model.block_finder import trace_blocks

    return trace_blocks(model, names, plain_inputs(inputs), device)


def assign_leftovers(blocks: Sequence[Block], model: nn.Module) -> tuple[Block, ...]:
    """Assign parameters and buffers that no block uses to the last block."""
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
    """Return the parameters of each block by the model's names; a shared parameter has one name in all blocks."""
    return tuple(dict(block.parameters) for block in blocks)


def shared_parameters(blocks: Sequence[Block]) -> dict[str, tuple[int, ...]]:
    """Return the names of tied parameters, and the indices of the blocks that compute with each."""
    holders: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        for name in block.parameters:
            holders.setdefault(name, []).append(number)
    return {name: tuple(numbers) for name, numbers in holders.items() if len(numbers) > 1}


def is_plain_sequential(model: nn.Module) -> bool:
    """Return whether the model only calls its children in order, each with the output of the one before."""
    return isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward


def call_model(model: nn.Module, inputs: Activations) -> Activations:
    """Call the model with `inputs`, passed as `find_blocks` describes."""
    if is_plain_sequential(model):
        return model(inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def _call_child(child: nn.Module, activations: Activations, _inputs: Activations = None) -> Activations:
    return child(activations)


def _children(model: nn.Module) -> tuple[Block, ...]:
    children = {
        name: child for name, child in model._modules.items() if child is not None
    }  # named_children skips duplicates
    if not children:
        raise InputError("the nn.Sequential is empty", hint="Pass a model with at least one block.")
    parameter_names = {parameter: name for name, parameter in model.named_parameters()}
    buffer_names = {buffer: name for name, buffer in model.named_buffers()}
    blocks = tuple(
        Block(
            name=name,
            module=child,
            call=partial(_call_child, child),
            parameters={parameter_names[parameter]: parameter for parameter in child.parameters()},
            buffers={buffer_names[buffer]: buffer for buffer in child.buffers()},
        )
        for name, child in children.items()
    )
    return assign_leftovers(blocks, model)
