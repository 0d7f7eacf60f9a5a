"""What belongs to a model's state, under which names, and which rank writes what of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from penstock.model import Block
from penstock.runtime.layout import StageView


@dataclass(frozen=True)
class Entry:
    """A parameter, or a buffer that belongs to the state."""

    name: str
    """Its first name, under which a rank holds it."""
    keys: tuple[str, ...]
    """All its names in the model's state: a shared one has several."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_parameter: bool

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def tensor(self, model: nn.Module) -> Tensor:
        """The tensor that the model has under this name now."""
        return model.get_parameter(self.name) if self.is_parameter else model.get_buffer(self.name)


def state_entries(model: nn.Module) -> tuple[Entry, ...]:
    """What `model.state_dict()` has in it, in its order; extra state of modules is left out."""
    names: dict[int, list[str]] = {}
    found: dict[int, tuple[Tensor, bool]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        persistent = {
            name: item for name, item in module._buffers.items() if name not in module._non_persistent_buffers_set
        }
        for name, item in (*module._parameters.items(), *persistent.items()):
            if item is not None:
                names.setdefault(id(item), []).append(prefix + name)
                found[id(item)] = (item, name in module._parameters)
    return tuple(
        Entry(names[key][0], tuple(names[key]), tuple(item.shape), item.dtype, is_parameter)
        for key, (item, is_parameter) in found.items()
    )


def writers(entries: Sequence[Entry], blocks: Sequence[Block], stages: Sequence[StageView]) -> dict[str, int]:
    """Which rank writes each entry: one that has its newest values, so that all have about the same to write.

    Parameters are newest where they are trained, buffers where the forward runs.
    """
    homes: dict[str, list[int]] = {}
    for stage in stages:
        for block in blocks[stage.start : stage.stop]:
            for name in block.parameters:
                homes.setdefault(name, []).extend(stage.backward)
            for name in block.buffers:
                homes.setdefault(name, list(stage.forward))
    load: dict[int, int] = {}
    chosen = {}
    for entry in entries:
        rank = min(sorted(homes[entry.name]), key=lambda rank: load.get(rank, 0))
        chosen[entry.name] = rank
        load[rank] = load.get(rank, 0) + entry.num_bytes
    return chosen
