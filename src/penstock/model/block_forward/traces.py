"""The traces of a model's forward, by the sizes of the inputs.

Forward may take another path for other numbers of rows, other lengths, or padded rows. Each kind of input has a trace
of its own, made by an abstract run (`tracing/abstraction.py`), which needs no values of parameters: ranks agree.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from penstock.errors import InputError, PenstockError
from penstock.model.block_forward.input_form import InputForm
from penstock.model.block_forward.python_state import PythonState
from penstock.model.blocks import Activations
from penstock.model.state import preserve_state
from penstock.model.tracing import (
    COARSER_BLOCKS,
    Abstraction,
    Autocast,
    BlockCall,
    Dataflow,
    Event,
    Placeholder,
    Record,
    autocast_devices,
    choose_cuts,
    find_flow,
    local_values,
    read_autocast,
    run_and_record,
    suspend_all_modes,
)
from penstock.model.trees import map_tensors

if TYPE_CHECKING:
    from penstock.model.block_forward.replay import SharedValues

MAX_TRACES = 512
"""Traces that a model keeps."""
MAX_PATHS = 32
"""Traces for inputs of equal shapes, each of another path."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The trace of forward for inputs of one kind.

    Attributes:
        record: The events, each assigned to a block.
        flow: The values that cross each cut.
        is_opaque: Whether forward does something outside the blocks that its events do not describe.
        state: The Python state under which forward took this path.
    """

    record: Record
    flow: Dataflow
    is_opaque: bool
    state: PythonState
    placeholders: dict[int, Placeholder] = field(default_factory=dict)
    """Cached placeholders of values. They hold no data, but creating one takes time."""
    entries: dict[int, Any] = field(default_factory=dict)
    """What each block has prepared for this trace."""
    reading: list[tuple[Any, ...]] = field(default_factory=list)
    """The operations of `local_reads`, once they are prepared."""

    def placeholder(self, value: int) -> Placeholder:
        """Return the placeholder of a value."""
        placeholder = self.placeholders.get(value)
        if placeholder is None:
            known = self.record.values[value]
            placeholder = Placeholder(known.shape, known.dtype, known.device, known.origin)
            self.placeholders[value] = placeholder
        return placeholder

    @cached_property
    def layers(self) -> list[int]:
        """The block of each call that forward makes of torch functions and of blocks."""
        return [event.unit for event in self.record.events[1:]]

    @cached_property
    def changes_local(self) -> bool:
        """Whether forward changes the inputs, or values that follow from them, in place."""
        return any(event.changes and self.flow.is_local(event) for event in self.record.events)

    @cached_property
    def local_reads(self) -> tuple[int, ...]:
        """The events that read data that depends on the inputs only. Forward may branch on them."""
        return tuple(
            number
            for number, event in enumerate(self.record.events)
            if event.is_sized_by_data or (event.reads_values and event.uses and self.flow.local.issuperset(event.uses))
        )

    @cached_property
    def runs_python_at_end(self) -> bool:
        """Whether forward may use sizes that depend on data after its last block, where they differ in every batch.

        Such sizes need not be those of the trace: the last block always runs the Python code of forward.
        """
        return any(event.is_sized_by_data and self.is_at_end(event) for event in self.record.events)

    def is_at_end(self, event: Event) -> bool:
        """Return whether the last block executes the event."""
        return event.unit + 1 == len(self.record.blocks)


@dataclass(eq=False)
class ForwardTraces:
    """The traces of a model, which all its blocks share.

    Attributes:
        model: The model.
        names: Names of the blocks, in the order of their calls.
        device: Device on which the blocks run.
        samples: How the blocks were called in real runs.
        guide: The record of a real run.
        form: The form of the sample inputs.
    """

    model: nn.Module
    names: tuple[str, ...]
    device: torch.device
    samples: Sequence[Sequence[BlockCall]]
    guide: Record | None
    form: InputForm
    _traces: dict[Any, list[Trace]] = field(default_factory=dict)
    _last: tuple[Any, Any, Trace] | None = None
    _shared: "SharedValues | None" = None

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The kinds of devices whose autocast matters."""
        return autocast_devices(self.device)

    @cached_property
    def modules(self) -> tuple[nn.Module, ...]:
        """The modules of the blocks."""
        return tuple(self.model.get_submodule(name) for name in self.names)

    def find(self, inputs: Activations) -> Trace:
        """Return the trace for inputs of this kind.

        Raises:
            MismatchError: The structure or the constants of the inputs differ from those of the sample.
            InputError: Forward cannot be split for these inputs.
        """
        mode = self._mode()
        if self._last is not None and self._last[0] is inputs and self._last[1] == mode:
            return self._last[2]
        key = (mode, self.form.shapes(inputs))
        trace = self._matching(key, inputs) or self.add(key, inputs)
        self._last = (inputs, mode, trace)
        return trace

    def _matching(self, key: Any, inputs: Activations) -> Trace | None:
        other = None
        for trace in self._traces.get(key, ()):
            if (other is None or trace.state.is_unchanged()) and self._takes_path(trace, inputs):
                if trace.state.is_unchanged():
                    return trace
                # One that was made in another Python state may still hold; the run notices if it does not.
                other = trace
        return other

    def share(self, trace: Trace, inputs: Activations, unit: int) -> "SharedValues | None":
        """Return the values that all blocks of this pass share; None if forward may take another path by now."""
        shared = self._shared
        if shared is None or shared.inputs is not inputs or shared.trace is not trace or unit <= shared.unit:
            if not trace.state.is_unchanged():
                return None
            from penstock.model.block_forward.replay import SharedValues

            shared = self._shared = SharedValues(trace, inputs)
        shared.unit = unit
        return shared

    def retrace(self, inputs: Activations) -> Trace:
        """Trace forward again for these inputs, for which it took another path than the trace found."""
        mode = self._mode()
        trace = self.add((mode, self.form.shapes(inputs)), inputs)
        self._last = (inputs, mode, trace)
        return trace

    def _mode(self) -> tuple[bool, Autocast]:
        return self.model.training, read_autocast(self.devices)

    def add(self, key: Any, inputs: Activations) -> Trace:
        """Trace forward for these inputs."""
        trace = self._trace(inputs)
        if sum(map(len, self._traces.values())) >= MAX_TRACES:
            self._traces.pop(next(iter(self._traces)))
        others = self._traces.setdefault(key, [])
        others.insert(0, trace)
        del others[MAX_PATHS:]
        return trace

    def _trace(self, inputs: Activations) -> Trace:
        abstraction = Abstraction(self.samples, self.guide, self.device)
        copied = map_tensors(lambda tensor: tensor.detach().clone(), inputs)
        with suspend_all_modes(), trial_run(self.model), abstraction.fake_state(self.model):
            try:
                run = run_and_record(self.model, self.names, copied, abstraction)
            except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
                if isinstance(error, PenstockError):
                    raise
                lines = str(error).splitlines() or [""]
                raise InputError(
                    f"forward fails where its blocks do not run: {type(error).__name__}: {lines[0][:200]}",
                    hint="Return from a block what forward needs of it: tensors that hooks or attributes of inner "
                    f"modules pass to forward are not sent to other stages. {COARSER_BLOCKS}",
                ) from error
        record = choose_cuts(run.record, local_values(run.record))
        python = PythonState(self.model, self.modules)
        return Trace(record, find_flow(record), run.is_opaque or python.has_hooks, python)

    def _takes_path(self, trace: Trace, inputs: Activations) -> bool:
        """Return whether forward takes the path of the trace for these inputs."""
        if not trace.local_reads:
            return True
        from penstock.model.block_forward.path_reads import takes_path

        return takes_path(trace, self.model, inputs, self.devices)


@contextmanager
def trial_run(model: nn.Module) -> Iterator[None]:
    """Context of a run of forward without a backward, which leaves no trace in the model."""
    with preserve_state(model), training_only(model), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad=True")  # of reentrant checkpoints
        yield


@contextmanager
def training_only(model: nn.Module) -> Iterator[None]:
    """Switch off what only generation needs within the context: the key-value cache of transformers models."""
    configs: dict[int, Any] = {
        id(config): config
        for module in model.modules()
        for config in (module.__dict__.get("config"),)
        if getattr(config, "use_cache", None) is True
    }
    for config in configs.values():
        config.use_cache = False
    try:
        yield
    finally:
        for config in configs.values():
            config.use_cache = True
