"""Runs one block of a model by the model's own forward, entered in the middle.

For block k the forward runs from its start on the model's inputs. Blocks before k are not called, and torch functions
before it that depend on parameters are not computed: their results are replaced by a tensor of the incoming activations
or by a placeholder that has only a shape. Block k and the code after it run normally up to the cut before block k + 1.
There an exception leaves forward, and the values that are needed later are the outgoing activations. No code is
translated, so forward may contain arbitrary Python. Where its recorded calls are enough, they are repeated instead
(`replay.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from penstock.errors import InputError, MismatchError
from penstock.model.block_forward.replay import Replay
from penstock.model.block_forward.traces import ForwardTraces, Trace, training_only
from penstock.model.blocks import Activations, call_model
from penstock.model.tracing import (
    COARSER_BLOCKS,
    Event,
    Slot,
    State,
    append_captured,
    function_name,
    intercept_calls,
    intercept_vmap,
    is_metadata_query,
    list_sizes,
    suspend_mode,
    with_captured,
    with_numbers,
)
from penstock.model.trees import map_tensors, rows_of, tensors_of, with_rows

_MAX_RETRACES = 2
"""A forward that prepares its model after a change of the training flag takes one path once, and then another."""


class _Step(NamedTuple):
    """The action of one block at one event."""

    event: Event
    runs: bool
    keeps: tuple[tuple[int, int], ...]
    """Positions in the result, and the values there, that are outgoing activations."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """What one block needs of a trace."""

    trace: Trace
    unit: int
    replay: Replay

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


@dataclass(frozen=True, eq=False)
class PartialForward:
    """The callable of one block.

    Attributes:
        traces: The traces of the model.
        unit: Number of the block.
        may_replay: Whether recorded calls may be repeated, where they describe all that forward does.
    """

    traces: ForwardTraces
    unit: int
    may_replay: bool = True

    def __call__(self, activations: Activations, inputs: Activations = None) -> Activations:
        """Run the block and the code of forward up to the next block.

        Args:
            activations: The output of the block before; for the first block, the inputs of the model.
            inputs: The inputs of the model, for the same rows.
        """
        if self.unit == 0:
            inputs = activations
        name = self.traces.names[self.unit]
        try:
            entry = self._entry(self.traces.find(inputs))
            if self.unit:
                _require_shapes(entry, activations)
            if self.may_replay and entry.replay.is_possible:
                shared = self.traces.share(entry.trace, inputs, self.unit)
                if shared is not None:
                    return entry.replay.run(activations, shared)
            for _ in range(_MAX_RETRACES):
                try:
                    return self._run(entry, activations, inputs)
                except _PathChangedError:
                    # The state of the model has changed since the trace.
                    entry = self._entry(self.traces.retrace(inputs))
            return self._run(entry, activations, inputs)
        except InputError as error:
            if error.where:
                raise
            raise type(error)(error.what, where=f"block {name!r}", hint=error.hint) from None

    def row_dims(self, inputs: Activations) -> list[tuple[int, int]]:
        """Return for each incoming tensor the dimension of its rows and its size per row; (0, 0) without rows."""
        rows = rows_of(inputs)
        one, two = (self._entry(self.traces.find(with_rows(inputs, num))) for num in (rows, 2 * rows))
        dims = []
        for value, other in zip(one.live_in, two.live_in, strict=True):
            shape, more = one.trace.record.values[value].shape, two.trace.record.values[other].shape
            dim = next(
                (dim for dim, (size, size_of_more) in enumerate(zip(shape, more, strict=True)) if size != size_of_more),
                -1,
            )
            dims.append((0, 0) if dim < 0 else (dim, shape[dim] // rows))
        return dims

    def _entry(self, trace: Trace) -> _Entry:
        entry = trace.entries.get(self.unit)
        if entry is None:
            replay = Replay(trace, self.traces.model, self.unit, self.traces.devices)
            entry = trace.entries[self.unit] = _Entry(trace, self.unit, replay)
        return entry

    def _run(self, entry: _Entry, activations: Activations, inputs: Activations) -> Activations:
        if entry.trace.changes_local:
            inputs = map_tensors(lambda tensor: tensor.clone(), inputs)
        held = dict(zip(entry.live_in, activations, strict=True)) if self.unit else {}
        run = _PartialRun(entry, self.traces, held)
        if not self.unit:
            run.keep(entry.steps[0], inputs)
        modules = frozenset(self.traces.modules[: self.unit + 2])  # forward is left before later blocks
        intercepted = intercept_calls(modules, run.on_block)
        with training_only(self.traces.model), intercept_vmap(run), intercepted, run:
            try:
                output = call_model(self.traces.model, inputs)
            except _CutReached:
                return run.activations()
        if self.unit + 1 < len(self.traces.names):
            raise _changed_trace(self.traces.names[self.unit + 1], "return")
        return output


class _PathChangedError(InputError):
    """Forward takes another path than its trace, and the block has not run yet."""


class _CutReached(BaseException):
    """Raised at the cut to leave forward. Not an Exception, so that no forward catches it."""


class _PartialRun(TorchFunctionMode):
    """One run of forward for one block. It intercepts every torch function and block that forward calls."""

    def __init__(self, entry: _Entry, traces: ForwardTraces, held: dict[int, Tensor]) -> None:
        super().__init__()
        self.entry = entry
        self.traces = traces
        self.held = held
        self.position = 1  # event 0 is the inputs
        self.num_calls = 0
        self.inside = False
        self.has_left = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = function_name(func)
        if self.inside or is_metadata_query(name):
            return func(*args, **(kwargs or {}))
        if self.has_left:
            if tensors_of((args, kwargs)):
                raise _CutReached
            return func(*args, **(kwargs or {}))  # contexts that end restore settings of torch
        args = with_numbers(name, args, lambda bound: self.__torch_function__(Tensor.__int__, types, (bound,)))
        step = self._next(name)
        if step.event.unit > self.entry.unit:
            self.has_left = True
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
        if self.has_left or number > self.entry.unit:
            self.has_left = True
            raise _CutReached
        step = self._next(self.entry.trace.record.blocks[number])
        self.num_calls += 1
        if self.traces.modules[number] is not module:
            raise _changed_trace(step.event.name, type(module).__name__)
        if number < self.entry.unit:
            return append_captured(self.stand_in(step.event))
        sizes = list_sizes()
        self.inside = True
        try:
            with suspend_mode(self):
                result = call(*args, **kwargs)
        finally:
            self.inside = False
        self.keep(step, with_captured(result, sizes))
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
            return self.entry.trace.placeholder(leaf.value) if held is None else held
        return leaf.of(self.traces.model) if isinstance(leaf, State) else leaf

    def _next(self, name: str) -> _Step:
        steps = self.entry.steps
        if self.position >= len(steps) or steps[self.position].event.name != name:
            expected = steps[self.position].event.name if self.position < len(steps) else "its end"
            error = _changed_trace(expected, name)
            raise error if self.num_calls > self.entry.unit else _PathChangedError(error.what, hint=error.hint)
        self.position += 1
        return steps[self.position - 1]


def _require_shapes(entry: _Entry, activations: Activations) -> None:
    """Check that the activations are those of the trace."""
    if not isinstance(activations, tuple | list) or len(activations) != len(entry.live_in):
        raise MismatchError(
            f"the block takes a tuple of {len(entry.live_in)} tensors, the output of the block before it"
        )
    for value, tensor in zip(entry.live_in, activations, strict=True):
        known = entry.trace.record.values[value]
        if tuple(tensor.shape) != known.shape:
            raise MismatchError(
                f"{known.origin} has shape {tuple(tensor.shape)}, but {known.shape} is expected for these inputs",
                hint="Pass the activations and the inputs of the same rows.",
            )


def _changed_trace(expected: str, actual: str) -> InputError:
    return InputError(
        f"forward calls {actual!r} where it called {expected!r} with the sample inputs", hint=COARSER_BLOCKS
    )
