"""Runs one block by repeating the calls of its trace, without the Python code of the model's forward around it.

Entering a forward in the middle by its own code (`partial_forward.py`) takes time that grows with the number of blocks
before. The calls that a trace has recorded take the same results, at a cost that depends on this block only. A block is
replayed if everything that its part of forward does is recorded; values that all blocks need, such as a mask, are
computed once for all blocks of a stage.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from penstock.model.block_forward.traces import Trace
from penstock.model.blocks import Activations
from penstock.model.tracing import Autocast, Call, Event, Items, Slot, State, read_autocast
from penstock.model.trees import tensors_of


class Operation(NamedTuple):
    """A call to repeat."""

    number: int
    """Its event."""
    function: Callable[..., Any]
    call: Call
    results: tuple[tuple[int, int], ...]
    """Positions in the result, and the values there."""
    is_single: bool
    """Whether the result is a single tensor."""
    is_shared: bool
    """Whether every block computes it alike."""
    touched: tuple[int, ...]
    """Values that it makes or changes."""
    frees: tuple[int, ...]
    """Values that no later operation of the block uses."""


class SharedValues:
    """Values of one pass that depend on the inputs only, shared by the blocks of a stage."""

    def __init__(self, trace: Trace, inputs: Activations) -> None:
        self.trace = trace
        self.inputs = inputs
        self.unit = -1
        """The last block that used them."""
        tensors = tensors_of(inputs)
        if trace.changes_local:
            tensors = [tensor.clone() for tensor in tensors]
        # A tensor that is passed twice counts as two, as in the trace.
        self.values: dict[int, Tensor] = dict(zip(trace.record.events[0].makes, tensors, strict=True))
        self.done: set[int] = set()


class Replay:
    """The recorded calls of one block."""

    def __init__(self, trace: Trace, model: nn.Module, unit: int, devices: Sequence[str]) -> None:
        self._devices = devices
        self._model = model
        record, flow = trace.record, trace.flow
        self._is_last = unit + 1 == len(record.blocks)
        self._live_in = flow.live[unit - 1] if unit else ()
        self._live_out = () if self._is_last else flow.live[unit]
        operations: list[Operation] = []
        for number, event in enumerate(record.events[:-1]):
            if number == 0 or not _has_effect(event):
                continue
            shared = event.unit != unit
            if shared and not (flow.is_local(event) and flow.needed(event) >= unit and event.unit <= unit):
                continue
            assert event.call is not None, "only the inputs have no call"
            results = tuple(
                (position, leaf.value) for position, leaf in enumerate(event.leaves) if isinstance(leaf, Slot)
            )
            shared = flow.is_local(event)
            operations.append(
                Operation(
                    number,
                    event.call.function,
                    event.call,
                    results,
                    event.spec.is_leaf(),
                    shared,
                    (*event.makes, *event.changes),
                    (),
                )
            )
        self._operations = _with_frees(operations, self._live_out, record.events[-1] if self._is_last else None)
        self._output = record.events[-1].call
        reads = [event for event in record.events[1:-1] if event.reads_values and event.unit <= unit]
        calls = [operation.call for operation in operations]
        if self._is_last and self._output is not None:
            calls.append(self._output)
        self.is_possible = (
            not trace.is_opaque
            and not (self._is_last and trace.runs_python_at_end)
            and all(flow.local.issuperset(event.uses) for event in reads)
            and all(call.is_repeatable for call in calls)
            and not any(event.has_captured for event in record.events if event.unit == unit)
        )
        """Whether the trace describes all that the block and the code around it do."""

    def run(self, activations: Activations, shared: SharedValues) -> Activations:
        """Run the block."""
        held: dict[int, Any] = dict(zip(self._live_in, activations, strict=True)) if self._live_in else {}
        values, model = shared.values, self._model
        autocast = read_autocast(self._devices)
        for operation in self._operations:
            if operation.is_shared and operation.number in shared.done:
                continue
            result = repeat(operation, held, values, model, autocast)
            target = values if operation.is_shared else held
            if operation.is_single:
                if operation.results:
                    target[operation.results[0][1]] = result
            else:
                leaves = pytree.tree_leaves(result)
                for position, value in operation.results:
                    target[value] = leaves[position]
            if operation.is_shared:
                shared.done.add(operation.number)
            for value in operation.frees:
                held.pop(value, None)
        if not self._is_last:
            return tuple(held[value] for value in self._live_out)
        assert self._output is not None, "the return has a call"
        leaves = [_argument(leaf, held, values, model) for leaf in self._output.leaves]
        return pytree.tree_unflatten(leaves, self._output.spec)[0]


def _has_effect(event: Event) -> bool:
    if event.is_metadata_query:
        return False
    return bool(event.is_block or event.makes or event.changes or event.changed_state)


def repeat(
    operation: Operation, held: dict[int, Any], values: dict[int, Tensor], model: nn.Module, autocast: Autocast
) -> Any:
    """Make a call again, with these values."""
    call = operation.call
    kwargs: dict[str, Any] = {}
    if call.items is None:
        leaves = [_argument(leaf, held, values, model) for leaf in call.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, call.spec)
    else:
        args = list(call.items)
        for position, item in call.variables:
            args[position] = _argument(item, held, values, model)
        if call.keywords:
            num_args = len(args) - len(call.keywords)
            kwargs = dict(zip(call.keywords, args[num_args:], strict=True))
            del args[num_args:]
    recorded = call.context
    if (recorded.grad or not torch.is_grad_enabled()) and recorded.autocast == autocast:
        return operation.function(*args, **kwargs)
    with ExitStack() as stack:
        if not recorded.grad:
            stack.enter_context(torch.no_grad())
        for (kind, is_enabled, dtype), ambient in zip(recorded.autocast, autocast, strict=True):
            if (kind, is_enabled, dtype) != ambient:
                stack.enter_context(torch.autocast(kind, dtype, enabled=is_enabled))
        return operation.function(*args, **kwargs)


def _argument(leaf: Any, held: dict[int, Any], values: dict[int, Tensor], model: nn.Module) -> Any:
    kind = type(leaf)
    if kind is Slot:
        tensor = held.get(leaf.value)
        return values[leaf.value] if tensor is None else tensor
    if kind is Items:
        return leaf.kind([_argument(item, held, values, model) for item in leaf.leaves])
    return leaf.of(model) if kind is State else leaf


def _with_frees(operations: Sequence[Operation], live_out: Sequence[int], last: Event | None) -> tuple[Operation, ...]:
    """Note which values each operation uses last, so that their memory is freed as in forward.

    Shared operations that no other one needs are dropped. Forward uses them in conditions only.
    """
    kept = {*live_out, *(() if last is None else last.uses)}
    result: list[Operation] = []
    for operation in reversed(operations):
        if operation.is_shared and not kept.intersection(operation.touched):
            continue
        touched = {leaf.value for leaf in operation.call.leaves if isinstance(leaf, Slot)}
        touched |= {value for _, value in operation.results}
        frees = tuple(value for value in touched if value not in kept)
        kept |= touched
        result.append(operation._replace(frees=frees))
    return tuple(reversed(result))
