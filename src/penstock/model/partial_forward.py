"""Runs one block of a model by the model's own forward, entered in the middle.

For block k the forward runs from its start with placeholders for inputs. Blocks before k are not called, and torch
functions before it are not computed: their results are replaced by a tensor of the incoming activations or by a
placeholder that has only a shape. Block k and the code after it run normally up to the cut before block k + 1. There
an exception leaves forward, and the values that are needed later are the outgoing activations. No code is translated,
so forward may contain arbitrary Python.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from penstock.errors import InputError, MismatchError
from penstock.model.blocks import Activations, call_model
from penstock.model.row_shapes import RowShape, count_rows
from penstock.model.tracing import (
    COARSER_BLOCKS,
    Dataflow,
    Event,
    Placeholder,
    Record,
    Slot,
    State,
    function_name,
    intercept_calls,
    suspend_mode,
)


@dataclass(frozen=True, eq=False)
class ForwardTrace:
    """The trace of a model's forward, which all its blocks share."""

    model: nn.Module
    modules: tuple[nn.Module, ...]
    record: Record
    flow: Dataflow
    shapes: tuple[RowShape, ...]
    placeholders: dict[tuple[int, int], Placeholder] = field(default_factory=dict)
    """Cached placeholders, by value and rows. They hold no data, but creating one takes time."""

    def placeholder(self, value: int, rows: int) -> Placeholder:
        """Return the placeholder of a value."""
        placeholder = self.placeholders.get((value, rows))
        if placeholder is None:
            shape = self.shapes[value]
            placeholder = Placeholder(shape.at(rows), shape.dtype, shape.device, shape.origin)
            self.placeholders[value, rows] = placeholder
        return placeholder


def to_device(trace: ForwardTrace, device: torch.device) -> ForwardTrace:
    """Convert a trace on the meta device for running on another: recorded devices are replaced."""

    def replaced(leaf: Any) -> Any:
        return device if isinstance(leaf, torch.device) and leaf.type == "meta" else leaf

    events = tuple(replace(event, leaves=tuple(map(replaced, event.leaves))) for event in trace.record.events)
    shapes = tuple(replace(shape, device=replaced(shape.device)) for shape in trace.shapes)
    return replace(trace, record=replace(trace.record, events=events), shapes=shapes, placeholders={})


class _Step(NamedTuple):
    """The action of one block at one event."""

    event: Event
    runs: bool
    keeps: tuple[tuple[int, int], ...]
    """Positions in the result, and the values there, that are outgoing activations."""


@dataclass(frozen=True, eq=False)
class PartialForward:
    """The callable of one block: activations in, activations out."""

    trace: ForwardTrace
    unit: int
    evaluation: "PartialForward | None" = None
    """Callable for evaluation mode, in which forward may take another path."""

    def __call__(self, activations: Activations) -> Activations:
        """Run the block and the code of forward up to the next block."""
        if self.evaluation is not None and not self.trace.model.training:
            return self.evaluation(activations)
        record = self.trace.record
        try:
            run = self._start_run(activations)
            with intercept_calls(self._modules, run.on_block), run:
                try:
                    output = call_model(self.trace.model, run.inputs)
                except _CutReached:
                    return run.activations()
            if self.unit + 1 < len(record.blocks):
                raise _changed_trace(record.blocks[self.unit + 1], "return")
            return output
        except InputError as error:
            if error.where:
                raise
            where = f"block {record.blocks[self.unit]!r}"
            raise type(error)(error.what, where=where, hint=error.hint) from None

    @cached_property
    def live_in(self) -> tuple[int, ...]:
        """The values of the incoming activations."""
        return self.trace.flow.live[self.unit - 1] if self.unit else ()

    @cached_property
    def live_out(self) -> tuple[int, ...]:
        """The values of the outgoing activations; none for the last block, which returns the model's output."""
        return self.trace.flow.live[self.unit] if self.unit + 1 < len(self.trace.record.blocks) else ()

    @cached_property
    def steps(self) -> tuple[_Step, ...]:
        """The action at each event of forward."""
        live_out = frozenset(self.live_out)
        return tuple(
            _Step(
                event,
                self.trace.flow.runs(event, self.unit),
                tuple(
                    (position, leaf.value)
                    for position, leaf in enumerate(event.leaves)
                    if isinstance(leaf, Slot) and leaf.value in live_out
                ),
            )
            for event in self.trace.record.events
        )

    @cached_property
    def _modules(self) -> frozenset[nn.Module]:
        return frozenset(self.trace.modules[: self.unit + 2])  # forward is left before later blocks

    @cached_property
    def _input_shapes(self) -> tuple[RowShape, ...]:
        return tuple(self.trace.shapes[value] for value in self.live_in)

    def _start_run(self, activations: Activations) -> "_PartialRun":
        if self.unit == 0:
            run = _PartialRun(self, {}, 0)
            run.inputs = _checked_inputs(self.trace.record, activations)
            run.keep(self.steps[0], activations)
            return run
        if not isinstance(activations, tuple | list) or len(activations) != len(self.live_in):
            raise MismatchError(
                f"the block takes a tuple of {len(self.live_in)} tensors, the output of the block before it"
            )
        rows = count_rows(self._input_shapes, tuple(activations), self.trace.record.rows)
        run = _PartialRun(self, dict(zip(self.live_in, activations, strict=True)), rows)
        run.inputs = run.stand_in(self.trace.record.events[0])
        return run


class _CutReached(BaseException):
    """Raised at the cut to leave forward. Not an Exception, so that no forward catches it."""


class _PartialRun(TorchFunctionMode):
    """One run of forward for one block. It intercepts every torch function and block that forward calls."""

    inputs: Activations

    def __init__(self, entry: PartialForward, held: dict[int, Tensor], rows: int) -> None:
        super().__init__()
        self.entry = entry
        self.held = held
        self.rows = rows
        self.position = 1  # event 0 is the inputs
        self.num_calls = 0
        self.inside = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.inside:
            return func(*args, **(kwargs or {}))
        step = self._next(function_name(func))
        if step.event.unit > self.entry.unit:
            raise _CutReached
        if not step.runs:
            return self.stand_in(step.event)
        result = func(*args, **(kwargs or {}))
        if step.keeps:
            self.keep(step, result)
        return result

    def on_block(
        self, module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.inside:
            return call(*args, **kwargs)
        number = self.num_calls
        if number > self.entry.unit:
            raise _CutReached
        self.num_calls += 1
        step = self._next(self.entry.trace.record.blocks[number])
        if self.entry.trace.modules[number] is not module:
            raise _changed_trace(step.event.name, type(module).__name__)
        if number < self.entry.unit:
            return self.stand_in(step.event)
        self.inside = True
        try:
            with suspend_mode(self):
                result = call(*args, **kwargs)
        finally:
            self.inside = False
        self.keep(step, result)
        return result

    def stand_in(self, event: Event) -> Any:
        """Return the recorded result of the event, with incoming activations, and placeholders for the rest."""
        leaves = [self._stand_in_leaf(leaf) for leaf in event.leaves]
        return leaves[0] if event.spec.is_leaf() else pytree.tree_unflatten(leaves, event.spec)

    def keep(self, step: _Step, result: Any) -> None:
        """Store the outgoing activations in the result of an event."""
        if step.keeps:
            leaves = [result] if isinstance(result, Tensor) else pytree.tree_leaves(result)
            for position, value in step.keeps:
                self.held[value] = leaves[position]

    def activations(self) -> tuple[Tensor, ...]:
        """Return the outgoing activations."""
        return tuple(self.held[value] for value in self.entry.live_out)

    def _stand_in_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Slot):
            held = self.held.get(leaf.value)
            return self.entry.trace.placeholder(leaf.value, self.rows) if held is None else held
        return leaf.of(self.entry.trace.model) if isinstance(leaf, State) else leaf

    def _next(self, name: str) -> _Step:
        steps = self.entry.steps
        if self.position >= len(steps) or steps[self.position].event.name != name:
            expected = steps[self.position].event.name if self.position < len(steps) else "its end"
            raise _changed_trace(expected, name)
        self.position += 1
        return steps[self.position - 1]


def _checked_inputs(record: Record, inputs: Activations) -> Activations:
    """Check that structure and constants of the inputs match the sample: later blocks use those of the sample."""
    leaves, spec = pytree.tree_flatten(inputs)
    event = record.events[0]
    if spec != event.spec:
        raise MismatchError("the structure of the inputs differs from that of the sample inputs")
    for leaf, recorded in zip(leaves, event.leaves, strict=True):
        if isinstance(leaf, Tensor) != isinstance(recorded, Slot) or (
            not isinstance(leaf, Tensor) and leaf != recorded
        ):
            raise MismatchError(
                f"an input is {leaf!r}, but was {recorded!r} in the sample inputs",
                hint="Pass values that change between calls as tensors.",
            )
    return inputs


def _changed_trace(expected: str, actual: str) -> InputError:
    return InputError(
        f"forward calls {actual!r} where it called {expected!r} with the sample inputs", hint=COARSER_BLOCKS
    )
