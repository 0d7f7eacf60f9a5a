"""The record of one run of a model's forward outside its blocks: values, and the events that produce and use them.

A run is either real, or *abstract*: then everything that depends on parameters, blocks or random numbers is a fake
tensor that has a shape only (`recorder.py`).

Events are, in order, the calls of torch functions by forward itself (and by modules that are not blocks) and the calls
of blocks; the first event stands for the inputs, the last for the return value. `Event.unit` is the index of the block
that executes the event: block k executes its own call and the events up to the cut before the call of block k + 1
(`cut_points.py` chooses it; as recorded, the cut is at that call); block 0 also executes the events before its call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from penstock.device import is_accelerator
from penstock.model.tracing.captured_outputs import Captured

COARSER_BLOCKS = "Use an nn.Sequential, or name coarser blocks that contain the whole computation."


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
class Items:
    """An argument that is a list or tuple of leaves, with at least one `Slot` or `State`."""

    kind: type
    leaves: tuple[Any, ...]


Autocast: TypeAlias = tuple[tuple[str, bool, torch.dtype], ...]
"""For each kind of device: whether autocast is enabled, and its type."""


def read_autocast(devices: Sequence[str]) -> Autocast:
    """Return the settings of autocast for these kinds of devices."""
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in devices)


def autocast_devices(device: torch.device) -> tuple[str, ...]:
    """Return the kinds of devices whose autocast matters to a model on this device."""
    return ("cpu", device.type) if is_accelerator(device) else ("cpu",)


class Context(NamedTuple):
    """The settings of torch under which forward made a call."""

    grad: bool
    autocast: Autocast
    saves: bool
    """Whether hooks on saved tensors are active, as inside of `torch.utils.checkpoint`."""
    region: int = 0
    """Number of the call of `torch.utils.checkpoint`, or of an autograd function, around it; 0 if there is none."""


@dataclass(frozen=True)
class Call:
    """How to make a call again. `leaves` and `spec` are its arguments, with a `Slot` or `State` for each tensor."""

    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    spec: pytree.TreeSpec
    context: Context

    @cached_property
    def keywords(self) -> tuple[str, ...]:
        """The names of keyword arguments."""
        return tuple(self._arguments[1])

    @cached_property
    def items(self) -> tuple[Any, ...] | None:
        """The arguments in order: leaves, tuples of constants, and `Items`. None if one is another structure."""
        args, kwargs = self._arguments
        items = tuple(map(_item, (*args, *kwargs.values())))
        return None if _OTHER in items else items

    @cached_property
    def variables(self) -> tuple[tuple[int, Any], ...]:
        """The items that are not constants, with their positions."""
        found = enumerate(self.items or ())
        return tuple((position, item) for position, item in found if isinstance(item, Slot | State | Items))

    @cached_property
    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arguments: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_unflatten(self.leaves, self.spec)
        return arguments

    @cached_property
    def is_repeatable(self) -> bool:
        """Whether its arguments are tensors and plain values, and no hooks were active on saved tensors."""
        return not self.context.saves and all(map(_is_repeatable, self.leaves))


@dataclass(frozen=True)
class Value:
    """A tensor that events produce and use. Its shape is that of the run."""

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
    is_sized_by_data: bool = False
    """Whether the shapes of its results depend on data, as those of `nonzero` and of masked indexing do."""
    call: Call | None = None
    """None for the inputs."""

    @cached_property
    def has_captured(self) -> bool:
        """Whether hooks inside of the block collect outputs of its modules."""
        return self.is_block and self.spec.context is Captured

    @cached_property
    def makes(self) -> tuple[int, ...]:
        """The values in its result."""
        return tuple(leaf.value for leaf in self.leaves if isinstance(leaf, Slot))

    @cached_property
    def is_metadata_query(self) -> bool:
        """Whether it involves no tensors, only settings of torch."""
        if self.makes or self.changes or self.changed_state or self.is_block:
            return False
        return not (self.uses or self.parameters or self.buffers)

    @cached_property
    def reads_values(self) -> bool:
        """Whether it converts tensor data to a Python value, on which code may branch, as `if x.sum() > 0` does."""
        return not (self.makes or self.changes or self.changed_state or self.is_block or self.is_metadata_query)


@dataclass(frozen=True)
class Record:
    """One run of forward. Event 0 produces the inputs; the last event uses the return value."""

    blocks: tuple[str, ...]
    values: tuple[Value, ...]
    events: tuple[Event, ...]


_OTHER = object()


def _item(argument: Any) -> Any:
    """Return an argument as `Call.items` describes it."""
    kind = type(argument)
    if kind in (Slot, State) or kind not in (tuple, list, dict):
        is_leaf = kind in (Slot, State) or not isinstance(argument, (tuple, list, dict))
        return argument if is_leaf else _OTHER
    if kind is dict or any(type(_item(item)) in (tuple, list, Items) or _item(item) is _OTHER for item in argument):
        return _OTHER
    if kind is tuple and not any(isinstance(item, Slot | State) for item in argument):
        return argument
    return Items(kind, tuple(argument))


def _is_repeatable(leaf: Any) -> bool:
    if isinstance(leaf, slice):
        return all(isinstance(bound, int | None) for bound in (leaf.start, leaf.stop, leaf.step))
    return isinstance(leaf, (Slot, State, Tensor, *_PLAIN)) or leaf is Ellipsis


_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))
