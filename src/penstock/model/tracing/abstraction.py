"""Abstract runs: forward runs on real inputs, but with fake tensors for whatever depends on parameters.

Fake tensors (of torch) have a shape, a type and a device, and no data. Code that depends on the inputs only, such as
that of a mask, runs on real data, and takes the branch that it takes in training.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model.tracing.block_calls import (
    Argument,
    BlockCall,
    Output,
    Same,
    predict_shape,
    shapes_of,
    tensor_arguments,
)
from penstock.model.tracing.record import COARSER_BLOCKS, Record, Slot, State
from penstock.model.trees import map_tensors, tensors_of


class Abstraction:
    """Computes the results of an abstract run.

    Args:
        samples: For each block, its calls in real runs. Empty: blocks run on fake tensors.
        guide: The record of a real run. Its results are used where forward reads the data of a fake tensor.
        device: Device of the model.
    """

    def __init__(self, samples: Sequence[Sequence[BlockCall]], guide: Record | None, device: torch.device) -> None:
        self._samples = samples
        self._guide = guide
        self.device = device
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._fakes: dict[int, tuple[Tensor, Tensor]] = {}
        self.is_sized_by_data = False
        """Whether the shapes of the last call's results depend on the data of its arguments."""

    def call(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any], position: int
    ) -> Any:
        """Call a torch function: on real data if all its arguments have data and none is a parameter."""
        self.is_sized_by_data = False
        args, kwargs = _forms_as_zeros(name, args, kwargs)
        tensors = tensors_of((args, kwargs))
        if not any(isinstance(tensor, FakeTensor | nn.Parameter) for tensor in tensors):
            result = func(*args, **kwargs)
            self.is_sized_by_data = self._has_other_shapes(func, args, kwargs, result)
            return result
        try:
            with self.mode:
                result = func(*self._faked(args), **self._faked(kwargs))
        except DynamicOutputShapeException as error:
            selecting = [isinstance(tensor, FakeTensor) for tensor in tensors if not tensor.is_floating_point()]
            if any(selecting) or not selecting:
                raise _reads_data(name) from error
            # The shape follows from masks or indices, which are real.
            result = self.hide(func(*_zeros(args), **_zeros(kwargs)))
            self.is_sized_by_data = True
        except DataDependentOutputException as error:
            return self._guided(name, position, error)
        return result

    def _has_other_shapes(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> bool:
        """Return whether the shapes of the results do not follow from the shapes of the arguments."""
        made, given = tensors_of(result), tensors_of((args, kwargs))
        if not made or not given or any(map(torch._C._functorch.is_functorch_wrapped_tensor, given)):
            return False
        try:
            with torch.no_grad(), self.mode:
                args, kwargs = map_tensors(self.mode.from_tensor, (args, kwargs))
                shapes = [tensor.shape for tensor in tensors_of(func(*args, **kwargs))]
        except Exception:  # the data is missing, or torch has no function of shapes
            return True
        return shapes != [tensor.shape for tensor in made]

    @contextmanager
    def fake_state(self, model: nn.Module) -> Iterator[None]:
        """Replace parameters and buffers on the meta device by fake tensors on the model's device."""
        replaced: list[tuple[dict[str, Any], str, Tensor]] = []
        held: dict[str, Any]
        for module in model.modules():
            for held in (module._parameters, module._buffers):
                replaced += [(held, name, item) for name, item in held.items() if item is not None and item.is_meta]
        for held, name, tensor in replaced:
            if id(tensor) not in self._fakes:
                fake = self._fake(tensor)
                if isinstance(tensor, nn.Parameter):
                    with self.mode:
                        self._fakes[id(tensor)] = (tensor, nn.Parameter(fake, tensor.requires_grad))
            held[name] = self._fakes[id(tensor)][1]
        try:
            yield
        finally:
            for held, name, tensor in replaced:
                held[name] = tensor

    @property
    def has_samples(self) -> bool:
        """Whether the results of blocks follow from real runs. Otherwise blocks run on fake tensors."""
        return bool(self._samples)

    def run_block(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a block on fake tensors."""
        try:
            with self.mode:
                return call(*self._faked(args), **self._faked(kwargs))
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise InputError(
                f"block {name!r} reads the data of a tensor, which a model on the meta device does not have",
                hint="Build the model on a device with memory, or name coarser blocks.",
            ) from error

    def call_block(self, number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a block returned in the samples, for these arguments and without data."""
        samples = [calls[number] for calls in self._samples]
        given = tensor_arguments((args, kwargs))
        shapes = shapes_of((args, kwargs))
        leaves: list[Any] = []
        for position, leaf in enumerate(samples[0].leaves):
            if isinstance(leaf, Argument):
                leaves.append(self._fake(given[leaf.path]))
            elif isinstance(leaf, Same):
                leaves.append(leaves[leaf.position])
            elif isinstance(leaf, Output):
                if not all(isinstance(sample.leaves[position], Output) for sample in samples):
                    raise _changing(name)
                leaves.append(self._empty(predict_shape(samples, position, shapes, name), leaf))
            else:
                if any(sample.leaves[position] != leaf for sample in samples):
                    raise _changing(name)
                leaves.append(leaf)
        with torch.no_grad():
            for path in samples[0].changed:
                given[path].copy_(given[path].clone())  # increments the version counters of all views
        return pytree.tree_unflatten(leaves, samples[0].spec)

    def hide(self, result: Any) -> Any:
        """Replace tensors with data, such as random numbers, by fake ones."""
        return map_tensors(self._fake, result)

    def _faked(self, tree: Any) -> Any:
        """Replace parameters, and tensors on the meta device."""

        def change(tensor: Tensor) -> Tensor:
            return self._fake(tensor) if isinstance(tensor, nn.Parameter) or tensor.is_meta else tensor

        return map_tensors(change, tree)

    def _fake(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._fakes.get(id(tensor))
        if known is None:
            with self.mode:
                device = self.device if tensor.is_meta else tensor.device
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            known = self._fakes[id(tensor)] = (tensor, fake)
        return known[1]

    def _empty(self, shape: tuple[int, ...], like: Output) -> Tensor:
        with self.mode:
            dense = torch.empty([shape[dim] for dim in like.order], dtype=like.dtype, device=self.device)
            back = sorted(range(len(shape)), key=lambda dim: like.order[dim])
            return dense.permute(back) if shape else dense

    def _guided(self, name: str, position: int, error: Exception) -> Any:
        events = () if self._guide is None else self._guide.events
        if position < len(events) and events[position].name == name:
            event = events[position]
            if not any(isinstance(leaf, Slot | State) for leaf in event.leaves):
                return pytree.tree_unflatten(list(event.leaves), event.spec)
        raise _reads_data(name) from error


_FORMED_LIKE = frozenset(("expand_as", "view_as", "reshape_as", "type_as", "to"))
"""Functions that use the data of their first argument only, and of others the shape, the type and the device."""


def _forms_as_zeros(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace arguments whose data does not matter by zeros, so that real data stays real."""
    if name not in _FORMED_LIKE or not args or isinstance(args[0], FakeTensor | nn.Parameter):
        return args, kwargs
    others, kwargs = map_tensors(
        lambda tensor: torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape),
        (args[1:], kwargs),
    )
    return (args[0], *others), kwargs


def _zeros(tree: Any) -> Any:
    return map_tensors(
        lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype) if isinstance(tensor, FakeTensor) else tensor, tree
    )


def _reads_data(name: str) -> InputError:
    return InputError(
        f"forward reads the data of a tensor that depends on parameters (in {name!r})", hint=COARSER_BLOCKS
    )


def _changing(name: str) -> InputError:
    return InputError(f"block {name!r} returns other things for other sizes of the inputs", hint=COARSER_BLOCKS)
