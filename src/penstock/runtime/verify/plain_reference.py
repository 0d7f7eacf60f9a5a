"""Reference training in a single process: the model's own forward and plain autograd.

Every plan must reproduce the results of this loop. Its only shared code with the code under test is the row-wise rng
(`rng.py`, `random_functions.py`): it calls the whole module as a user does, one micro-batch after the other,
and `backward()` on each scaled loss. Forward hooks on the blocks set the current layer of the random numbers.

Calls that a model's own forward makes between two blocks belong to the layer that `penstock.model` assigns them to. The
recorded trace of the forward lists them in order, so counting them gives the layer. A layer starts when the last call
of the layer before has ended: a forward that checkpoints its blocks then notes the random state of the right layer.

Scripted modules (torch.jit) accept no hooks. An nn.Sequential with a scripted child is called child by child.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from penstock.errors import InputError, ModelLocation
from penstock.model import (
    Block,
    PartialForward,
    RowList,
    call_model,
    function_name,
    is_metadata_query,
    is_plain_sequential,
    is_row_list,
    map_tensors,
    training_only,
)
from penstock.runtime.random_functions import RandomFunctionMode
from penstock.runtime.rng import RowRng
from penstock.runtime.tensors import Rows, count_rows
from penstock.runtime.verify.plain_precision import PlainPrecision


def reference_step(
    model: nn.Module,
    blocks: Sequence[Block],
    num_microbatches: int,
    loss: Callable[[Any, Any], Any] | None,
    inputs: Any,
    targets: Any = None,
    *,
    step: int = 0,
    seed: int = 0,
    precision: PlainPrecision | None = None,
) -> Tensor:
    """Compute the gradients of one iteration in a single process. They are added to `parameter.grad`.

    Args:
        model: The whole model.
        blocks: Its blocks. They only name the layers of random numbers; the model runs by its own forward.
        num_microbatches: Number of micro-batches.
        loss: The loss function: output and targets to the mean over their rows, or to a sum and a count. None for the
            model's own loss.
        inputs: Inputs of the whole batch.
        targets: Targets of the whole batch.
        step: Number of the iteration.
        seed: Seed of the random numbers.
        precision: The precision of the model; None: it computes as it is.

    Returns:
        The loss of the batch.

    Raises:
        InputError: The batch is malformed, or the loss is not a single number.
    """
    precision = PlainPrecision(model, None) if precision is None else precision
    inputs = precision.narrow(inputs)
    device = next((item.device for item in model.parameters()), torch.device("cpu"))
    num_rows = count_rows(inputs, targets)
    if _has_ignored_labels((inputs, targets)):
        # Only one pass over the whole batch has the right mean over labels, whatever the loss function is.
        num_microbatches = 1
    with precision.context(device):
        precision.begin()
        batches = _microbatches((inputs, targets), num_rows, num_microbatches, device)
        total = _run_microbatches(model, blocks, loss, batches, num_rows, step, seed, device, precision)
        precision.finish()
    return total


def _run_microbatches(
    model: nn.Module,
    blocks: Sequence[Block],
    loss: Callable[[Any, Any], Any] | None,
    batches: Iterator[tuple[Any, Any, int]],
    num_rows: int,
    step: int,
    seed: int,
    device: torch.device,
    precision: PlainPrecision,
) -> Tensor:
    """Run all micro-batches, one after the other. Returns the loss of the batch."""
    total: Tensor | None = None
    count = 0.0
    earlier: dict[nn.Parameter, Tensor | None] | None = None
    start = 0
    for part_inputs, part_targets, num in batches:
        rows = Rows(start, start + num)
        start = rows.stop
        rng = RowRng(seed, step, rows, is_split=False, device=device)
        with rng.preserve_state(), RandomFunctionMode(rng):
            compute = partial(_loss_of, loss, part_targets, precision)
            part, part_count = _forward(model, blocks, rng, part_inputs, compute, step, rows)
            if part_count is None:
                part = part * (num / num_rows)
            else:
                count += float(part_count)
                if earlier is None:
                    earlier = {item: item.grad for item in precision.parameters.values()}
                    for item in earlier:
                        item.grad = None
        # Sums would exceed the range of float16 sooner than means.
        shift = 1.0 if part_count is None or precision.scale == 1.0 else 2.0 ** (num_rows.bit_length() - 1)
        if part.requires_grad:
            # As torch advises, backward runs outside autocast. Checkpointed layers draw again in it.
            with torch.autocast(device.type, enabled=False), RandomFunctionMode(rng):
                part.backward(torch.full_like(part, precision.scale / shift))  # type: ignore[no-untyped-call]
        total = part.detach() if total is None else total + part.detach()
    assert total is not None, "a batch has rows"
    if earlier is None:
        return total
    # The loss function returns sums: divide them, and their gradients, by the count of the whole batch.
    for parameter, before in earlier.items():
        if parameter.grad is not None:
            parameter.grad /= count / shift if count else float("nan")
        if before is not None:
            parameter.grad = before if parameter.grad is None else before + parameter.grad
    return (total.double() / (count or float("nan"))).to(total.dtype)


def _has_ignored_labels(batch: Any) -> bool:
    """Whether a label is -100, which torch's cross entropy ignores."""
    tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    return any(bool((item == -100).any()) for item in tensors if item.dtype in (torch.int64, torch.int32))


def _loss_of(
    loss: Callable[[Any, Any], Any] | None, targets: Any, precision: PlainPrecision, output: Any
) -> tuple[Tensor, Any]:
    """The loss and the count that it must be divided by, if it is a sum."""
    output = precision.widen(output)
    if loss is not None:
        result = loss(output, targets)
    elif isinstance(output, Tensor):
        result = output
    elif isinstance(output, Mapping) or hasattr(output, "loss"):
        result = output["loss"] if isinstance(output, Mapping) else output.loss
    else:
        (result,) = [item for item in output if isinstance(item, Tensor) and item.shape == ()]
    value, count = result if isinstance(result, tuple) else (result, None)
    if not isinstance(value, Tensor) or value.dim():
        kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputError(
            f"the loss function returned {kind}",
            hint="Return one number: the mean over the rows; or a sum and a count.",
        )
    return precision.widen(value), count


def _microbatches(
    batch: Any, num_rows: int, num_microbatches: int, device: torch.device
) -> Iterator[tuple[Any, Any, int]]:
    """Inputs, targets and number of rows of each micro-batch that has rows. The first ones get the spare rows."""
    leaves, tree = pytree.tree_flatten(batch, is_leaf=is_row_list)
    numbers = torch.arange(num_rows).tensor_split(num_microbatches)
    columns = [
        [RowList(leaf[row] for row in part.tolist()) for part in numbers]
        if is_row_list(leaf)
        else leaf.detach().tensor_split(num_microbatches)
        if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == num_rows
        else [leaf] * num_microbatches
        for leaf in leaves
    ]
    sizes = map(len, numbers)
    for size, parts in zip(sizes, zip(*columns, strict=True), strict=True):
        if size:
            moved = [map_tensors(lambda tensor: tensor.to(device), part) for part in parts]
            inputs, targets = pytree.tree_unflatten(moved, tree)
            yield inputs, targets, size


def _forward(
    model: nn.Module,
    blocks: Sequence[Block],
    rng: RowRng,
    inputs: Any,
    loss: Callable[[Any], tuple[Tensor, Any]],
    step: int,
    rows: Rows,
) -> tuple[Tensor, Any]:
    """The loss of one micro-batch, and its count if it is a sum. It counts as a separate layer after the last one."""
    tracker = _LayerTracker(blocks, rng)
    try:
        output = tracker.call(model, inputs)
        tracker.enter(len(blocks))
        return loss(output)
    except InputError:
        raise
    except Exception as error:
        layer = tracker.layer
        what = f"forward of layer {layer} ({blocks[layer].name})" if layer < len(blocks) else "loss"
        error.add_note(ModelLocation(f"In the {what}, step {step}, rows {rows.start} to {rows.stop - 1}."))
        raise


class _LayerTracker(TorchFunctionMode):
    """Enters the layers of the random numbers while the model's own forward runs."""

    def __init__(self, blocks: Sequence[Block], rng: RowRng) -> None:
        super().__init__()
        self._modules = [block.module for block in blocks]
        self._rng = rng
        self._blocks = blocks
        self._traced_layers: list[int] | None = None
        self._position = 0
        self._depth = 0
        self._entered = 0
        self.layer = 0
        """The layer of the last call, for error messages."""

    def call(self, model: nn.Module, inputs: Any) -> Any:
        """Call the model."""
        self.enter(0)
        self._traced_layers = _traced_layers(self._blocks, inputs)
        if is_plain_sequential(model) and any(isinstance(item, torch.jit.ScriptModule) for item in self._modules):
            return self._call_children(inputs)
        with ExitStack() as stack:
            for module in dict.fromkeys(self._modules):
                stack.enter_context(_observe(module, self._begin_block, self._end_block))
            if self._traced_layers is not None:
                stack.enter_context(self)
            with training_only(model):
                return call_model(model, inputs)

    def enter(self, layer: int) -> None:
        """Start a layer."""
        self.layer = self._entered = layer
        self._rng.enter_layer(layer)

    def _call_children(self, activations: Any) -> Any:
        for layer, module in enumerate(self._modules):
            self.enter(layer)
            activations = module(activations)
        return activations

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count the torch functions that forward calls outside the blocks."""
        if self._depth or is_metadata_query(function_name(func)):
            return func(*args, **(kwargs or {}))
        self._begin_call()
        result = func(*args, **(kwargs or {}))
        self._end_call()
        return result

    def _begin_block(self) -> None:
        if not self._depth:
            self._begin_call()
        self._depth += 1

    def _end_block(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._end_call()

    def _begin_call(self) -> None:
        """Enter the layer of a call of forward, of a torch function or of a block."""
        self._enter_at(self._position)
        self._position += 1
        self.layer = self._entered

    def _end_call(self) -> None:
        """Enter the layer of the next call. The last call is followed by none."""
        if self._position < len(self._blocks if self._traced_layers is None else self._traced_layers):
            self._enter_at(self._position)

    def _enter_at(self, position: int) -> None:
        layers = self._traced_layers
        layer = position if layers is None else layers[min(position, len(layers) - 1)]
        if layer != self._entered:
            self._entered = layer
            self._rng.enter_layer(layer)


def _traced_layers(blocks: Sequence[Block], inputs: Any) -> list[int] | None:
    """The layer of each call of the model's own forward on these inputs; None for the children of an nn.Sequential."""
    partial = blocks[0].call
    return partial.traces.find(inputs).layers if isinstance(partial, PartialForward) else None


@contextmanager
def _observe(module: nn.Module, begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    """Call `begin` before each call of a module, and `end` after it."""
    compiled = module._compiled_call_impl
    if compiled is not None:
        # Hooks of a module that was compiled in place would become part of its code.
        def call(*args: Any, **named: Any) -> Any:
            begin()
            try:
                return compiled(*args, **named)
            finally:
                end()

        module._compiled_call_impl = call
        try:
            yield
        finally:
            module._compiled_call_impl = compiled
        return
    handles = (
        module.register_forward_pre_hook(lambda *_: begin(), prepend=True),
        module.register_forward_hook(lambda *_: end(), always_call=True),
    )
    forward, is_own = module.forward, "forward" in module.__dict__

    def observed(*args: Any, **named: Any) -> Any:
        # Code that calls `forward` itself runs no hooks.
        begin()
        try:
            return forward(*args, **named)
        finally:
            end()

    module.__dict__["forward"] = observed
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        if is_own:
            module.__dict__["forward"] = forward
        else:
            del module.__dict__["forward"]
