"""Recorder of the events of a model's forward outside its blocks (`record.py`)."""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from penstock.errors import InputError
from penstock.model.blocks import Activations, call_model
from penstock.model.tracing.abstraction import Abstraction
from penstock.model.tracing.block_calls import BlockCall, describe_call
from penstock.model.tracing.captured_outputs import append_captured, list_sizes, with_captured
from penstock.model.tracing.function_names import function_name, is_metadata_query
from penstock.model.tracing.intercept import intercept_calls, intercept_vmap, suspend_mode
from penstock.model.tracing.record import (
    COARSER_BLOCKS,
    Call,
    Context,
    Event,
    Record,
    Slot,
    State,
    Value,
    autocast_devices,
    read_autocast,
)
from penstock.model.tracing.slice_bounds import with_numbers
from penstock.model.trees import tensors_of

_VMAP = frozenset(("_add_batch_dim", "_remove_batch_dim"))
"""Calls that can only be repeated inside of `torch.vmap`."""
_IN_ORDER = "Name the blocks in the order in which forward calls them, once for each call."
_RANDOM = ("rand", "dropout", "normal", "bernoulli", "uniform", "multinomial", "poisson", "exponential")


class Run(NamedTuple):
    """A recorded run: the record, the output, the tensor of each value, and how the blocks were called."""

    record: Record
    output: Activations
    tensors: tuple[Tensor, ...]
    calls: tuple[BlockCall, ...]
    is_opaque: bool
    """Whether forward computes something outside its blocks that the calls of the record do not repeat."""


def run_and_record(
    model: nn.Module, names: Sequence[str], inputs: Activations, abstraction: Abstraction | None = None
) -> Run:
    """Run forward on these inputs and record it. The names of the blocks must be in the order of their calls.

    Args:
        model: The model.
        names: Names of the blocks.
        inputs: Inputs of the model.
        abstraction: Makes the run abstract.

    Raises:
        InputError: Forward does not call the blocks in this order, or replaces a buffer outside the blocks.
    """
    recorder = _Recorder(model, names, abstraction)
    buffers = {name: id(buffer) for name, buffer in model.named_buffers()}
    recorder.record_event("inputs", None, (), inputs)
    grad = torch.no_grad() if abstraction is None else torch.enable_grad()
    held = {id(tensor) for module in model.modules() for tensor in tensors_of(vars(module))}
    with ExitStack() as stack:
        intercepted = intercept_calls(set(recorder.modules), recorder.on_block)
        for context in (grad, recorder.note_functions(), intercept_vmap(recorder), intercepted, recorder):
            stack.enter_context(context)
        output = call_model(model, inputs)
    if recorder.num_calls < len(names):
        raise InputError(f"forward did not call block {names[recorder.num_calls]!r}", hint=_IN_ORDER)
    recorder.record_event("return", None, (output,), None)
    for name, buffer in model.named_buffers():
        if buffers.get(name) != id(buffer) and not any(name.startswith(f"{block}.") for block in names):
            raise InputError(
                f"forward replaces buffer {name!r} outside the blocks",
                hint=f"Change it in place, inside a block. {COARSER_BLOCKS}",
            )
    record = Record(tuple(names), tuple(recorder.values), tuple(recorder.events))
    is_opaque = recorder.has_functions or _has_unknown_tensors(record, held)
    return Run(record, output, tuple(recorder.tensors), tuple(recorder.calls), is_opaque)


def _has_unknown_tensors(record: Record, held: Set[int]) -> bool:
    """Return whether a call takes a tensor that neither a call has made nor a module held before.

    Code that no function mode sees has made it, maybe from the inputs.
    """
    leaves = (leaf for event in record.events if event.call is not None for leaf in event.call.leaves)
    return any(isinstance(leaf, Tensor) and id(leaf) not in held for leaf in leaves)


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module, names: Sequence[str], abstraction: Abstraction | None) -> None:
        super().__init__()
        self.names = names
        self.abstraction = abstraction
        self.modules = [model.get_submodule(name) for name in names]
        self.num_calls = 0
        self.inside = False
        self.has_functions = False
        self.ambient_hooks = _saved_tensors_hooks()
        device = next((item.device for item in model.parameters()), torch.device("cpu"))
        self.devices = autocast_devices(device if abstraction is None else abstraction.device)
        self.num_regions = 0
        self.function = 0  # the region of the outermost autograd function that has not returned
        self.checkpoints: dict[int, Any] = {}  # a hook of each call of torch.utils.checkpoint, by its region
        self.values: list[Value] = []
        self.events: list[Event] = []
        self.calls: list[BlockCall] = []
        self.tensors: list[Tensor] = []  # of each value; kept alive so that no id is reused
        self.numbers: dict[int, int] = {}  # id of a tensor -> its value
        self.parameters = {id(parameter): name for name, parameter in model.named_parameters()}
        self.buffers = {id(buffer): name for name, buffer in model.named_buffers()}
        self.state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    @contextmanager
    def note_functions(self) -> Iterator[None]:
        """Note whether forward applies an autograd function, whose calls no function mode sees."""
        own = Function.__dict__["apply"]

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if self.inside or self.function:
                return own.__func__(cls, *args, **kwargs)
            self.has_functions = True
            self.num_regions += 1
            self.function = self.num_regions
            try:
                return own.__func__(cls, *args, **kwargs)
            finally:
                self.function = 0

        Function.apply = classmethod(apply)  # type: ignore[assignment]
        try:
            yield
        finally:
            Function.apply = own  # type: ignore[method-assign]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if self.inside or is_metadata_query(name):
            return func(*args, **kwargs)
        args = with_numbers(name, args, lambda bound: self.__torch_function__(Tensor.__int__, types, (bound,)))
        self.has_functions |= name in _VMAP
        random_before, before = torch.get_rng_state(), self._versions()
        if self.abstraction is None:
            result = func(*args, **kwargs)
        else:
            self.inside = True
            try:
                result = self.abstraction.call(func, name, args, kwargs, len(self.events))
            finally:
                self.inside = False
        is_random = any(word in name for word in _RANDOM) or not torch.equal(random_before, torch.get_rng_state())
        if is_random and self.abstraction is not None:
            result = self.abstraction.hide(result)
        is_sized = self.abstraction is not None and self.abstraction.is_sized_by_data
        self.record_event(name, func, (args, kwargs), result, before=before, is_random=is_random, is_sized=is_sized)
        return result

    def on_block(
        self, module: nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.inside:
            return call(*args, **kwargs)
        if self.num_calls == len(self.names) or self.modules[self.num_calls] is not module:
            raise self._wrong_order(module)
        number = self.num_calls
        name = self.names[number]
        if self.function:
            raise InputError(
                f"forward calls block {name!r} inside an autograd function, as torch.utils.checkpoint with "
                "use_reentrant=True does",
                hint="Pass use_reentrant=False, or call torch.utils.checkpoint inside the block.",
            )
        self.num_calls += 1
        self.inside = True  # until the event is recorded, so that inspecting tensors records none
        try:
            before, sizes = self._versions(), list_sizes()
            with suspend_mode(self):
                if self.abstraction is None or not self.abstraction.has_samples:
                    if self.abstraction is None:
                        result = call(*args, **kwargs)
                    else:
                        result = self.abstraction.run_block(name, call, args, kwargs)
                    whole = with_captured(result, sizes)
                else:
                    whole = self.abstraction.call_block(number, name, args, kwargs)
                    result = append_captured(whole)
            for leaf in pytree.tree_leaves(result):
                if not isinstance(leaf, Tensor | bool | int | str | None):
                    raise InputError(
                        f"block {name!r} returns a {type(leaf).__name__}, which cannot be sent to another stage",
                        hint="Return tensors, None, integers and strings, in tuples, lists and dicts.",
                    )
            changed = [self.tensors[value]._version != version for value, version in enumerate(before[0])]
            self.calls.append(describe_call((args, kwargs), whole, self.numbers, changed))
            function = call if isinstance(call, MethodType) else module  # forward calls the module or its forward
            self.record_event(name, function, (args, kwargs), whole, before=before, is_block=True)
        finally:
            self.inside = False
        return result

    def record_event(
        self,
        name: str,
        function: Callable[..., Any] | None,
        arguments: Any,
        result: Any,
        *,
        before: tuple[list[int], dict[str, int]] = ([], {}),
        is_block: bool = False,
        is_random: bool = False,
        is_sized: bool = False,
    ) -> None:
        given, given_spec = pytree.tree_flatten(arguments)
        ids = [id(tensor) for tensor in tensors_of(given)]
        values_before, state_before = before
        unit = max(0, self.num_calls - 1)
        origin = (
            f"the result of block {name!r}" if is_block else f"the result of {name!r} near block {self.names[unit]!r}"
        )
        leaves, spec = pytree.tree_flatten(result)
        call = Call(function or call_model, tuple(map(self._argument, given)), given_spec, self._context())
        self.events.append(
            Event(
                name=name,
                unit=unit,
                uses=tuple(dict.fromkeys(self.numbers[key] for key in ids if key in self.numbers)),
                changes=tuple(
                    value for value, version in enumerate(values_before) if self.tensors[value]._version != version
                ),
                parameters=tuple(self.parameters[key] for key in ids if key in self.parameters),
                buffers=tuple(self.buffers[key] for key in ids if key in self.buffers),
                changed_state=()
                if is_block
                else tuple(key for key, version in state_before.items() if self.state[key]._version != version),
                leaves=tuple(self._slot(leaf, unit, origin) if isinstance(leaf, Tensor) else leaf for leaf in leaves),
                spec=spec,
                is_block=is_block,
                is_random=is_random,
                is_sized_by_data=is_sized,
                call=call,
            )
        )

    def _versions(self) -> tuple[list[int], dict[str, int]]:
        """Return the version counters of all tensors, which torch increments for every in-place change."""
        return (
            [tensor._version for tensor in self.tensors],
            {} if self.inside else {name: tensor._version for name, tensor in self.state.items()},
        )

    def _slot(self, tensor: Tensor, unit: int, origin: str) -> Slot | State:
        """Classify a returned tensor as a parameter or buffer, or as a value."""
        state = self.parameters.get(id(tensor), self.buffers.get(id(tensor)))
        if state is not None:
            return State(state)
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.values)
            self.tensors.append(tensor)
            self.values.append(Value(tuple(tensor.shape), tensor.dtype, tensor.device, unit, origin))
        return Slot(self.numbers[id(tensor)])

    def _argument(self, leaf: Any) -> Any:
        """Return what stands for an argument in a `Call`."""
        if not isinstance(leaf, Tensor):
            return leaf
        state = self.parameters.get(id(leaf), self.buffers.get(id(leaf)))
        if state is not None:
            return State(state)
        number = self.numbers.get(id(leaf))
        return leaf if number is None else Slot(number)

    def _context(self) -> Context:
        hooks = _saved_tensors_hooks()
        saves, region = hooks != self.ambient_hooks, self.function
        if not region and saves and hooks is not None and hooks[0].__module__ == checkpoint.__module__:
            region = next((number for number, hook in self.checkpoints.items() if hook is hooks[0]), 0)
            if not region:
                self.num_regions += 1
                region = self.num_regions
                self.checkpoints[region] = hooks[0]
        return Context(torch.is_grad_enabled(), read_autocast(self.devices), saves, region)

    def _wrong_order(self, module: nn.Module) -> InputError:
        name = next(name for name, named in zip(self.names, self.modules, strict=True) if named is module)
        done = self.num_calls
        expected = f"where block {self.names[done]!r} was expected" if done < len(self.names) else "once more"
        return InputError(f"forward calls block {name!r} {expected}", hint=_IN_ORDER)


def _saved_tensors_hooks() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)
