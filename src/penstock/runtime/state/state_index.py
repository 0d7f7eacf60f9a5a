"""The tensors of a model's state: their names, and the rank that writes each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from penstock.model import Block
from penstock.runtime.layout import StageView
from penstock.runtime.tensors import grad_dtype


@dataclass(frozen=True)
class Entry:
    """A parameter, or a persistent buffer."""

    name: str
    """Its first name, under which ranks hold it."""
    keys: tuple[str, ...]
    """All its names in the model's state. A shared tensor has several."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_parameter: bool

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def tensor(self, model: nn.Module) -> Tensor:
        """The current tensor of this name in a model."""
        return model.get_parameter(self.name) if self.is_parameter else model.get_buffer(self.name)


def state_entries(model: nn.Module) -> tuple[Entry, ...]:
    """The entries of `model.state_dict()`, in its order. Extra state of modules is left out."""
    names: dict[int, list[str]] = {}
    tensors: dict[int, tuple[Tensor, bool]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        persistent = {
            name: item for name, item in module._buffers.items() if name not in module._non_persistent_buffers_set
        }
        for name, item in (*module._parameters.items(), *persistent.items()):
            if item is not None:
                names.setdefault(id(item), []).append(prefix + name)
                tensors[id(item)] = (item, name in module._parameters)
    return tuple(
        # Of a trained parameter the value is its master weight, which has the type of its gradient.
        Entry(
            names[key][0],
            tuple(names[key]),
            tuple(item.shape),
            grad_dtype(item) if item.requires_grad else item.dtype,
            is_parameter,
        )
        for key, (item, is_parameter) in tensors.items()
    )


def holders(blocks: Sequence[Block], stages: Sequence[StageView]) -> dict[str, list[int]]:
    """The ranks that have the latest values of each entry, by name.

    Of parameters these are the ranks that train them; of buffers, those that run the forward.
    """
    holders: dict[str, list[int]] = {}
    for stage in stages:
        for block in blocks[stage.start : stage.stop]:
            for name in block.parameters:
                holders.setdefault(name, []).extend(stage.backward)
            for name in block.buffers:
                holders.setdefault(name, list(stage.forward))
    return holders


def writers(entries: Sequence[Entry], holders: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The rank that writes each entry, by name: one that has its latest values. The bytes to write are balanced."""
    num_bytes: dict[int, int] = {}
    chosen = {}
    for entry in entries:
        rank = min(sorted(holders[entry.name]), key=lambda rank: num_bytes.get(rank, 0))
        chosen[entry.name] = rank
        num_bytes[rank] = num_bytes.get(rank, 0) + entry.num_bytes
    return chosen
