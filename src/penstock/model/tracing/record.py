"""The record of one run of a model's forward outside its blocks: values, and the events that produce and use them.

Events are, in order, the calls of torch functions by forward itself (and by modules that are not blocks) and the calls
of blocks; the first event stands for the inputs, the last for the return value. `Event.unit` is the index of the block
that executes the event: block k executes its own call and the events up to the cut before the call of block k + 1
(`cut_points.py` chooses it; as recorded, the cut is at that call); block 0 also executes the events before its call.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock.errors import InputError

COARSER_BLOCKS = "Use an nn.Sequential, or name coarser blocks that contain the whole computation."

# Functions that query metadata of a tensor or set a flag; `__get__` covers attributes such as shape.
_FORM = frozenset(
    ("__get__", "__set__", "size", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous", "type",
     "is_floating_point", "is_complex", "is_signed", "element_size", "get_device", "storage_offset", "__len__",
     "is_tensor", "is_inference", "is_conj", "is_neg", "is_same_size", "__hash__", "result_type")
)  # fmt: skip


class Slot(NamedTuple):
    """A leaf of an event's result that is a tensor: the number of its value."""

    value: int


class State(NamedTuple):
    """A leaf of an event's result that is a parameter or buffer: its name, since the tensor may be replaced."""

    name: str

    def of(self, model: nn.Module) -> Any:
        """Return the model's current tensor of this name."""
        holder, _, attribute = self.name.rpartition(".")
        return getattr(model.get_submodule(holder), attribute)


@dataclass(frozen=True)
class Value:
    """A tensor that events produce and use. Its shape is for the rows of the run."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    unit: int
    """Index of the block that produced it."""
    origin: str
    """Description of its source, for error messages."""


@dataclass(frozen=True)
class Event:
    """One call. `leaves` and `spec` are its result, with a `Slot` for each tensor."""

    name: str
    unit: int
    uses: tuple[int, ...]
    changes: tuple[int, ...]
    """Values that the call changed in place."""
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    changed_state: tuple[str, ...]
    """Parameters and buffers that the call changed in place, if it is not a block."""
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec
    is_block: bool = False
    is_random: bool = False

    @cached_property
    def makes(self) -> tuple[int, ...]:
        """The values in its result."""
        return tuple(leaf.value for leaf in self.leaves if isinstance(leaf, Slot))

    @cached_property
    def is_metadata_query(self) -> bool:
        """Whether it needs no tensor data: it queries metadata such as a shape, or involves no tensors."""
        if self.makes or self.changes or self.changed_state or self.is_block:
            return False
        return self.name in _FORM or not (self.uses or self.parameters or self.buffers)

    @cached_property
    def reads_values(self) -> bool:
        """Whether it converts tensor data to a Python value, on which code may branch, as `if x.sum() > 0` does."""
        return not (self.makes or self.changes or self.changed_state or self.is_block or self.is_metadata_query)


@dataclass(frozen=True)
class Record:
    """One run of forward on `rows` rows. Event 0 produces the inputs; the last event uses the return value."""

    rows: int
    blocks: tuple[str, ...]
    values: tuple[Value, ...]
    events: tuple[Event, ...]


def require_same_trace(one: Record, other: Record) -> None:
    """Check that forward executes the same events for both numbers of rows, as entering it in the middle requires.

    Raises:
        InputError: The events differ.
    """
    for first, second in zip(one.events, other.events, strict=False):
        if _course(first) != _course(second):
            break
    else:
        if len(one.events) == len(other.events):
            return
        first = one.events[min(len(one.events), len(other.events)) - 1]
    raise InputError(
        f"forward takes different paths for {other.rows} and {one.rows} rows (at {first.name!r}, "
        f"near block {one.blocks[first.unit]!r})",
        hint=COARSER_BLOCKS,
    )


def _course(event: Event) -> tuple[Any, ...]:
    constants = [leaf for leaf in event.leaves if not isinstance(leaf, Slot)] if event.is_block else []
    return (event.name, event.unit, event.uses, event.changes, event.makes, constants)
