"""Gradients of the loss of some rows, for comparing a micro-batch with its parts.

Weights of parts show in gradients: if the loss of a micro-batch is a weighted mean of those of its parts, then so is
its gradient, whatever the values of the losses are. At the start of training all rows have about the same loss, so the
losses themselves would show little.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from penstock.model import (
    LossFunction,
    PartialForward,
    eval_mode,
    map_batch,
    map_tensors,
    read_loss,
    rows_of,
    split_batch,
    tensors_of,
)
from penstock.runtime.rng import get_rng_states, set_rng_states
from penstock.runtime.stage import TorchStage, separate_grads
from penstock.runtime.tensors import PackedPayload, Rows, pack, unpack

MAX_ELEMENTS = 1 << 14
"""Elements of each gradient that are compared. They are spread evenly over the tensor."""


@dataclass(frozen=True)
class LossSample:
    """The last stage's input and targets for some rows of a micro-batch."""

    inputs: PackedPayload
    targets: Any
    num_rows: int
    batch: Any = None
    """The model's inputs for the same rows, unless they are the stage's input."""


@dataclass(frozen=True)
class LossGradient:
    """The count that the loss function returned, and elements of the gradient."""

    count: float | None
    elements: Tensor


Gradients = Callable[[Rows], LossGradient]
"""The gradient of the loss of some rows of a sample."""


def row_dims(runner: TorchStage, sample: LossSample, *, is_batch: bool) -> list[tuple[int, int]]:
    """Return for each tensor of a stage's input the dimension of its rows and its size per row; (0, 0) without rows."""
    call = runner.blocks[0].call
    if isinstance(call, PartialForward) and call.unit:
        dims = call.row_dims(sample.batch)
        if len(dims) == len(sample.inputs.tensors):
            return dims
    return [(0, _per_row(tensor, sample.num_rows, is_exact=is_batch)) for tensor in sample.inputs.tensors]


def slice_inputs(inputs: PackedPayload, dims: Sequence[tuple[int, int]], rows: Rows) -> PackedPayload:
    """Return copies of the parts of a stage's input for some rows."""
    if has_row_lists(inputs):
        batch = unpack(inputs, inputs.tensors)
        return pack(map_tensors(torch.clone, slice_batch(batch, rows_of(batch), rows)))[0]
    return inputs.with_tensors(
        [
            (tensor.narrow(dim, rows.start * each, rows.num * each) if each else tensor).clone()
            for tensor, (dim, each) in zip(inputs.tensors, dims, strict=True)
        ]
    )


def has_row_lists(inputs: PackedPayload) -> bool:
    """Return whether a stage's input is a batch that has lists with an item for each row."""
    return bool(split_batch(unpack(inputs, inputs.tensors))[1])


def double_rows(tensor: Tensor, num_rows: int, dim: int) -> Tensor:
    """Return a tensor with each of its rows twice, one after the other."""
    before, after = tensor.shape[:dim], tensor.shape[dim + 1 :]
    rows = tensor.reshape(*before, num_rows, tensor.shape[dim] // num_rows, *after)
    return rows.repeat_interleave(2, dim).reshape(*before, 2 * tensor.shape[dim], *after)


def slice_tree(tree: Any, num_rows: int, rows: Rows) -> Any:
    """Return the parts of an output or of targets for some rows. A tensor without rows is used whole."""

    def cut(tensor: Tensor) -> Tensor:
        each = _per_row(tensor, num_rows, is_exact=False)
        return tensor[rows.start * each : rows.stop * each] if each else tensor

    return map_batch(tree, cut, lambda items: items[rows.start : rows.stop])


def slice_batch(batch: Any, num_rows: int, rows: Rows) -> Any:
    """Return the parts of the model's inputs for some rows."""

    def cut(tensor: Tensor) -> Tensor:
        return tensor[rows.start : rows.stop] if has_rows(tensor, num_rows) else tensor

    return map_batch(batch, cut, lambda items: items[rows.start : rows.stop])


def double_batch(batch: Any, num_rows: int) -> Any:
    """Return a batch with each of its rows twice, one after the other."""

    def double(tensor: Tensor) -> Tensor:
        return double_rows(tensor, num_rows, 0) if has_rows(tensor, num_rows) else tensor

    return map_batch(batch, double, lambda items: [item for item in items for _ in range(2)])


def has_rows(tensor: Tensor, num_rows: int) -> bool:
    """Return whether the first dimension of a tensor of the batch is its rows."""
    return tensor.dim() > 0 and len(tensor) == num_rows


def _per_row(tensor: Tensor, num_rows: int, *, is_exact: bool) -> int:
    size = tensor.shape[0] if tensor.dim() else 0
    return 0 if size % num_rows or (is_exact and size != num_rows) else size // num_rows


def run_whole(runner: TorchStage, loss: LossFunction, sample: LossSample, step: int, base: int) -> tuple[Any, bool]:
    """Return the output of the model for all rows, and whether the loss function returns a sum and a count."""
    results: list[tuple[Any, bool]] = []

    def keep(output: Any) -> Tensor:
        # The loss is computed too, because the first forward shows whether a stage draws random numbers.
        value, count = read_loss(loss(output, sample.targets))
        results.append((map_tensors(Tensor.detach, output), count is not None))
        return value

    with runner.preserve_buffers(), runner.replay_sync(()), runner.given(sample.batch):
        copy = sample.inputs.with_tensors([tensor.clone() for tensor in sample.inputs.tensors])
        runner.run(copy, step, Rows(base, base + sample.num_rows), keep, keep=False, defer=False)
    return results[-1]


def output_gradients(runner: TorchStage, loss: LossFunction, sample: LossSample, output: Any) -> Gradients | None:
    """Return the gradients with respect to the output of the model, which is given.

    Returns:
        A function of rows; None if the loss depends on a part of the output that has no rows, or on none.
    """
    output = map_tensors(_as_leaf, output)
    leaves = [tensor for tensor in tensors_of(output) if tensor.requires_grad]

    def grads_of(rows: Rows) -> tuple[float | None, Sequence[Tensor | None]]:
        part, targets = (slice_tree(tree, sample.num_rows, rows) for tree in (output, sample.targets))
        with torch.enable_grad():
            value, count = read_loss(loss(part, targets))
            if not value.requires_grad:
                return _as_float(count), [None] * len(leaves)
            return _as_float(count), torch.autograd.grad(value, leaves, allow_unused=True)

    def gradient(rows: Rows) -> LossGradient:
        with _undisturbed(runner):
            count, grads = grads_of(rows)
        return LossGradient(count, _elements(grads, leaves))

    with _undisturbed(runner):
        _, grads = grads_of(Rows(0, sample.num_rows))
    pairs = zip(grads, leaves, strict=True)
    used = [leaf for grad, leaf in pairs if grad is not None and bool((grad != 0).any())]
    has_rows = [bool(_per_row(leaf, sample.num_rows, is_exact=False)) for leaf in used]
    return gradient if has_rows and all(has_rows) else None


def stage_gradients(
    runner: TorchStage,
    model: nn.Module,
    loss: LossFunction,
    sample: LossSample,
    step: int,
    base: int,
    *,
    is_batch: bool,
    is_training: bool,
) -> Gradients:
    """Return the gradients with respect to the parameters and inputs of the last stage, which runs for each part.

    Args:
        runner: The last stage.
        model: The model.
        loss: The loss function.
        sample: The rows.
        step: Number of the iteration.
        base: Number of the first row in the batch.
        is_batch: Whether the inputs of the stage are those of the model.
        is_training: Whether the model keeps its training mode. In evaluation mode no layer mixes rows.
    """
    dims = row_dims(runner, sample, is_batch=is_batch)
    needs = sample.inputs.needs_grad

    def gradient(rows: Rows) -> LossGradient:
        counts: list[Any] = []
        targets = slice_tree(sample.targets, sample.num_rows, rows)

        def compute(output: Any) -> Tensor:
            value, count = read_loss(loss(output, targets))
            counts.append(count)
            return value

        inputs = slice_inputs(sample.inputs, dims, rows)
        placed = Rows(base + rows.start, base + rows.stop)
        batch = slice_batch(sample.batch, sample.num_rows, rows)
        with separate_grads(runner.trained.values()) as parameters, runner.given(batch):
            _, graph = runner.run(inputs, step, placed, compute, keep=True, defer=False)
            input_grads = runner.backward(graph, graph.loss_grads)
            grads = [parameter.grad for parameter in parameters]
        of_inputs = _place(
            input_grads, sample.inputs, [pair for pair, need in zip(dims, needs, strict=True) if need], rows
        )
        return LossGradient(_as_float(counts[-1]), torch.cat([_elements(grads, parameters), of_inputs]))

    def run(rows: Rows) -> LossGradient:
        try:
            with nullcontext() if is_training else eval_mode(model), _undisturbed(runner):
                runner.read_modes()
                return gradient(rows)
        finally:
            runner.read_modes()

    return run


@contextmanager
def _undisturbed(runner: TorchStage) -> Iterator[None]:
    """Leave buffers, random state and warnings of the training as they are."""
    device = next((item.device for item in runner.parameters.values()), torch.device("cpu"))
    states = get_rng_states(device)
    with warnings.catch_warnings(), runner.preserve_buffers(), runner.replay_sync(()):
        # Losses may warn about parts with a single row.
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            set_rng_states(device, states)


def _as_leaf(tensor: Tensor) -> Tensor:
    leaf = tensor.detach().clone()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf


def _as_float(count: Tensor | float | None) -> float | None:
    return None if count is None else float(count)


def _elements(grads: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """Some elements of each gradient, in one tensor. A missing gradient is zero."""
    parts = [torch.zeros(0, dtype=torch.float64)]
    for grad, tensor in zip(grads, like, strict=True):
        every = -(-tensor.numel() // MAX_ELEMENTS) or 1
        if grad is None:
            parts.append(torch.zeros(len(range(0, tensor.numel(), every)), dtype=torch.float64))
        else:
            real = torch.view_as_real(grad.detach()) if grad.is_complex() else grad.detach()
            parts.append(real.reshape(-1)[:: every * (2 if grad.is_complex() else 1)].double().cpu())
    return torch.cat(parts)


def _place(
    grads: Sequence[Tensor | None], inputs: PackedPayload, dims: Sequence[tuple[int, int]], rows: Rows
) -> Tensor:
    """The gradients of the inputs of some rows, as elements of those of all rows."""
    likes = [tensor for tensor, need in zip(inputs.tensors, inputs.needs_grad, strict=True) if need]
    placed: list[Tensor | None] = []
    for grad, like, (dim, each) in zip(grads, likes, dims, strict=True):
        if grad is None:
            placed.append(None)
            continue
        whole = torch.zeros_like(like)
        (whole.narrow(dim, rows.start * each, rows.num * each) if each else whole).copy_(grad)
        placed.append(whole)
    return _elements(placed, likes)
