"""Checks for numbers that are not finite. They read the output of every layer, so they run only when enabled."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import RunError
from penstock.model import Block
from penstock.runtime.tensors import Rows


def is_finite(tree: Any) -> bool:
    """Return whether all numbers of all tensors in a tree are finite."""
    tensors = (leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))
    return all(bool(torch.isfinite(leaf).all()) for leaf in tensors if leaf.is_floating_point() or leaf.is_complex())


def check_output(output: Any, layer: int, block: Block, step: int, rows: Rows) -> None:
    """Check the output of a layer whose input is finite.

    Raises:
        RunError: The output is not finite.
    """
    if is_finite(output):
        return
    bad = _first_bad(block.parameters)
    why = f"; its parameter {bad!r} is not finite either, so the previous step is the cause" if bad else ""
    raise RunError(
        f"{describe_rows(step, rows)}: the output of layer {layer} ({block.name}) is not finite{why}",
        hint="Lower the learning rate, clip gradients, or inspect these rows.",
    )


def check_loss(loss: Any, layer: int, step: int, rows: Rows) -> None:
    """Check a loss that is computed from a finite output; `layer` is the last layer.

    Raises:
        RunError: The loss is not finite.
    """
    if not is_finite(loss):
        raise RunError(
            f"{describe_rows(step, rows)}: the loss is not finite, but the output of the last layer ({layer}) is",
            hint="Inspect the loss function and the targets of these rows.",
        )


def check_batch(batch: Any, step: int, rows: Rows) -> None:
    """Check the inputs of the model.

    Raises:
        RunError: The inputs are not finite.
    """
    if not is_finite(batch):
        raise RunError(f"{describe_rows(step, rows)}: the inputs are not finite", hint="Inspect these rows.")


def describe_rows(step: int, rows: Rows) -> str:
    """Return a step and a range of rows as text."""
    return f"step {step}, rows {rows.start} to {rows.stop - 1}"


def _first_bad(parameters: Mapping[str, Tensor]) -> str | None:
    return next((name for name, item in parameters.items() if not is_finite(item.detach())), None)
