"""What one run of a model's forward did outside its blocks: values, and the events that made and used them.

The events are the calls of torch functions by forward itself (and by modules that are not blocks), in order; the calls
of blocks; one in front that stands for the inputs, and one at the end that stands for what is returned. An event
belongs to the *unit* that does it: unit k does the call of block k and what happens up to a place before the call of
block k + 1 (`model/cut_points.py` finds it; as recorded, it is that call); unit 0 also what happens before block 0.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock.errors import InputError

COARSER = "Give an nn.Sequential, or name coarser blocks, so that what belongs together is in one of them."

# Functions that ask about a tensor's form or set a flag; with `__get__` come attributes such as shape.
_FORM = frozenset(
    ("__get__", "__set__", "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "type",
     "is_floating_point", "is_complex", "is_signed", "element_size", "get_device", "storage_offset", "__len__",
     "is_tensor", "is_inference", "is_conj", "is_neg", "is_same_size", "__hash__", "result_type")
)  # fmt: skip


class Slot(NamedTuple):
    """A place in what an event returned that holds a tensor: the number of the value."""

    value: int


class State(NamedTuple):
    """A place in what an event returned that holds a parameter or buffer: its name, as the tensor may be replaced."""

    name: str

    def of(self, model: nn.Module) -> Any:
        """The tensor that the model has under this name now."""
        holder, _, attribute = self.name.rpartition(".")
        return getattr(model.get_submodule(holder), attribute)


@dataclass(frozen=True)
class Value:
    """One tensor that events pass on. Its shape is for the rows of the run."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    unit: int
    """The unit that made it."""
    origin: str
    """Where it comes from, in words."""


@dataclass(frozen=True)
class Event:
    """One call. `leaves` and `spec` are what it returned, with a `Slot` for each tensor that it may have made."""

    name: str
    unit: int
    uses: tuple[int, ...]
    changes: tuple[int, ...]
    """Values that it changed in place."""
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    changed_state: tuple[str, ...]
    """Parameters and buffers that it changed in place, if it is no block."""
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec
    is_block: bool = False
    is_random: bool = False

    @cached_property
    def makes(self) -> tuple[int, ...]:
        """The values in what it returned."""
        return tuple(leaf.value for leaf in self.leaves if isinstance(leaf, Slot))

    @cached_property
    def asks_form(self) -> bool:
        """Whether it needs no numbers: it asks for a shape or the like, or has nothing to do with tensors."""
        if self.makes or self.changes or self.changed_state or self.is_block:
            return False
        return self.name in _FORM or not (self.uses or self.parameters or self.buffers)

    @cached_property
    def reads(self) -> bool:
        """Whether it turns numbers of a tensor into something that Python may decide by, as `if x.sum() > 0` does."""
        return not (self.makes or self.changes or self.changed_state or self.is_block or self.asks_form)


@dataclass(frozen=True)
class Record:
    """One run of forward on `rows` rows. Event 0 makes the inputs; the last one uses what is returned."""

    rows: int
    blocks: tuple[str, ...]
    values: tuple[Value, ...]
    events: tuple[Event, ...]


def require_same_course(one: Record, other: Record) -> None:
    """Refuse a forward that does something else for another number of rows: entered in the middle, it would be lost."""
    for first, second in zip(one.events, other.events, strict=False):
        if _course(first) != _course(second):
            break
    else:
        if len(one.events) == len(other.events):
            return
        first = one.events[min(len(one.events), len(other.events)) - 1]
    raise InputError(
        f"forward does something else with {other.rows} rows than with {one.rows} (at {first.name!r}, "
        f"near block {one.blocks[first.unit]!r})",
        hint=COARSER,
    )


def _course(event: Event) -> tuple[Any, ...]:
    constants = [leaf for leaf in event.leaves if not isinstance(leaf, Slot)] if event.is_block else []
    return (event.name, event.unit, event.uses, event.changes, event.makes, constants)
