"""Running one block of a model by the model's own forward, entered in the middle.

For unit k the forward runs from its start with placeholders for inputs. Blocks before k are not called and torch
functions before it not computed: what they returned stands in, either a tensor of the carry or a placeholder that has
only a shape. Block k and all behind it run as ever, up to the cut before block k + 1: there forward is left, and the
values that are needed later are the carry. No code is translated: whatever Python the model is written in, it runs.
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
from penstock.model.blocks import Carry, call_model
from penstock.model.row_shapes import Form, rows_in
from penstock.model.tracing import (
    COARSER,
    Event,
    Flow,
    Placeholder,
    Record,
    Slot,
    State,
    function_name,
    intercepted,
    stepped_aside,
)


@dataclass(frozen=True, eq=False)
class Course:
    """What is known of a model's forward: all that its units share."""

    model: nn.Module
    modules: tuple[nn.Module, ...]
    record: Record
    flow: Flow
    forms: tuple[Form, ...]
    placeholders: dict[tuple[int, int], Placeholder] = field(default_factory=dict)
    """Those made so far, by value and rows: there are no bytes in them, and making one takes its time."""

    def placeholder(self, value: int, rows: int) -> Placeholder:
        """What stands for a value where it is not there."""
        made = self.placeholders.get((value, rows))
        if made is None:
            form = self.forms[value]
            made = Placeholder(form.shape(rows), form.dtype, form.device, form.origin)
            self.placeholders[value, rows] = made
        return made


def moved(course: Course, device: torch.device) -> Course:
    """A course that was learnt on the meta device, for running on another: what forward asks for devices is told so."""

    def place(leaf: Any) -> Any:
        return device if isinstance(leaf, torch.device) and leaf.type == "meta" else leaf

    events = tuple(replace(event, leaves=tuple(map(place, event.leaves))) for event in course.record.events)
    forms = tuple(replace(form, device=place(form.device)) for form in course.forms)
    return replace(course, record=replace(course.record, events=events), forms=forms, placeholders={})


class _Step(NamedTuple):
    """What one unit does at one event."""

    event: Event
    runs: bool
    keeps: tuple[tuple[int, int], ...]
    """Places in what is returned, and the values there, that the unit hands on."""


@dataclass(frozen=True, eq=False)
class Entry:
    """The callable of one block: carry in, carry out."""

    course: Course
    unit: int
    evaluating: "Entry | None" = None
    """What to do instead while the model is in evaluation mode, where forward may take another course."""

    def __call__(self, carry: Carry) -> Carry:
        """Run the block and what forward does up to the next one."""
        if self.evaluating is not None and not self.course.model.training:
            return self.evaluating(carry)
        record = self.course.record
        try:
            visit = self._visit(carry)
            with intercepted(self._modules, visit.on_block), visit:
                try:
                    output = call_model(self.course.model, visit.inputs)
                except _Left:
                    return visit.carry()
            if self.unit + 1 < len(record.blocks):
                raise _other_course(record.blocks[self.unit + 1], "return")
            return output
        except InputError as error:
            if error.where:
                raise
            where = f"block {record.blocks[self.unit]!r}"
            raise type(error)(error.what, where=where, hint=error.hint) from None

    @cached_property
    def live_in(self) -> tuple[int, ...]:
        """The values of the carry."""
        return self.course.flow.live[self.unit - 1] if self.unit else ()

    @cached_property
    def live_out(self) -> tuple[int, ...]:
        """The values of the carry that it returns; none for the last block, which returns the model's output."""
        return self.course.flow.live[self.unit] if self.unit + 1 < len(self.course.record.blocks) else ()

    @cached_property
    def steps(self) -> tuple[_Step, ...]:
        """What to do at each event of forward."""
        wanted = frozenset(self.live_out)
        return tuple(
            _Step(
                event,
                self.course.flow.runs(event, self.unit),
                tuple(
                    (place, leaf.value)
                    for place, leaf in enumerate(event.leaves)
                    if isinstance(leaf, Slot) and leaf.value in wanted
                ),
            )
            for event in self.course.record.events
        )

    @cached_property
    def _modules(self) -> frozenset[nn.Module]:
        return frozenset(self.course.modules[: self.unit + 2])  # forward is left before others

    @cached_property
    def _forms_in(self) -> tuple[Form, ...]:
        return tuple(self.course.forms[value] for value in self.live_in)

    def _visit(self, carry: Carry) -> "_Visit":
        if self.unit == 0:
            visit = _Visit(self, {}, 0)
            visit.inputs = _checked_inputs(self.course.record, carry)
            visit.keep(self.steps[0], carry)
            return visit
        if not isinstance(carry, tuple | list) or len(carry) != len(self.live_in):
            raise MismatchError(
                f"the block takes a tuple of {len(self.live_in)} tensors, which the block before it returns"
            )
        rows = rows_in(self._forms_in, tuple(carry), self.course.record.rows)
        visit = _Visit(self, dict(zip(self.live_in, carry, strict=True)), rows)
        visit.inputs = visit.stand_in(self.course.record.events[0])
        return visit


class _Left(BaseException):
    """Raised at the cut, to get out of forward. No Exception, so that no forward catches it."""


class _Visit(TorchFunctionMode):
    """One run of forward for one unit. It stands between forward and every torch function and block that it calls."""

    inputs: Carry

    def __init__(self, entry: Entry, held: dict[int, Tensor], rows: int) -> None:
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
            raise _Left
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
            raise _Left
        self.num_calls += 1
        step = self._next(self.entry.course.record.blocks[number])
        if self.entry.course.modules[number] is not module:
            raise _other_course(step.event.name, type(module).__name__)
        if number < self.entry.unit:
            return self.stand_in(step.event)
        self.inside = True
        try:
            with stepped_aside(self):
                result = call(*args, **kwargs)
        finally:
            self.inside = False
        self.keep(step, result)
        return result

    def stand_in(self, event: Event) -> Any:
        """What the event returned, with what was handed over, and placeholders for the rest."""
        leaves = [self._stand_in_leaf(leaf) for leaf in event.leaves]
        return leaves[0] if event.spec.is_leaf() else pytree.tree_unflatten(leaves, event.spec)

    def keep(self, step: _Step, result: Any) -> None:
        """Hold on to what is to be handed on."""
        if step.keeps:
            leaves = [result] if isinstance(result, Tensor) else pytree.tree_leaves(result)
            for place, value in step.keeps:
                self.held[value] = leaves[place]

    def carry(self) -> tuple[Tensor, ...]:
        """What the next block gets."""
        return tuple(self.held[value] for value in self.entry.live_out)

    def _stand_in_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, Slot):
            held = self.held.get(leaf.value)
            return self.entry.course.placeholder(leaf.value, self.rows) if held is None else held
        return leaf.of(self.entry.course.model) if isinstance(leaf, State) else leaf

    def _next(self, name: str) -> _Step:
        steps = self.entry.steps
        if self.position >= len(steps) or steps[self.position].event.name != name:
            expected = steps[self.position].event.name if self.position < len(steps) else "its end"
            raise _other_course(expected, name)
        self.position += 1
        return steps[self.position - 1]


def _checked_inputs(record: Record, inputs: Carry) -> Carry:
    """Refuse inputs with another structure or other plain values: later blocks have those of the sample."""
    leaves, spec = pytree.tree_flatten(inputs)
    event = record.events[0]
    if spec != event.spec:
        raise MismatchError("the inputs have another structure than those with which the blocks were found")
    for leaf, recorded in zip(leaves, event.leaves, strict=True):
        if isinstance(leaf, Tensor) != isinstance(recorded, Slot) or (
            not isinstance(leaf, Tensor) and leaf != recorded
        ):
            raise MismatchError(
                f"an input is {leaf!r}, and was {recorded!r} when the blocks were found",
                hint="Give what changes from call to call as a tensor.",
            )
    return inputs


def _other_course(expected: str, found: str) -> InputError:
    return InputError(
        f"forward now calls {found!r} where it called {expected!r} when the blocks were found", hint=COARSER
    )
