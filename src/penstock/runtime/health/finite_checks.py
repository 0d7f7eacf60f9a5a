"""Where numbers stop being finite, if somebody wants to know: it costs a look at every block's output."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import RunError
from penstock.model import Block
from penstock.runtime.tensors import Rows


def is_finite(carry: Any) -> bool:
    """Whether all numbers in it are."""
    found = (leaf for leaf in pytree.tree_leaves(carry) if isinstance(leaf, Tensor))
    return all(bool(torch.isfinite(leaf).all()) for leaf in found if leaf.is_floating_point() or leaf.is_complex())


def check_output(carry: Any, unit: int, block: Block, step: int, rows: Rows) -> None:
    """Refuse what a block made of input that was finite."""
    if is_finite(carry):
        return
    bad = _first_bad(block.parameters)
    why = f"; its parameter {bad!r} is not finite either, so the step before went wrong" if bad else ""
    raise RunError(
        f"{where(step, rows)}: the output of unit {unit} ({block.name}) is not finite{why}",
        hint="Lower the learning rate, clip gradients, or look at these rows.",
    )


def check_loss(loss: Any, unit: int, step: int, rows: Rows) -> None:
    """Refuse a loss that is not finite although what it was made of is."""
    if not is_finite(loss):
        raise RunError(
            f"{where(step, rows)}: the loss is not finite, but the output of the last unit ({unit}) is",
            hint="Look at the loss function and the targets of these rows.",
        )


def check_batch(batch: Any, step: int, rows: Rows) -> None:
    """Refuse input that is not finite."""
    if not is_finite(batch):
        raise RunError(f"{where(step, rows)}: the inputs are not finite", hint="Look at these rows.")


def where(step: int, rows: Rows) -> str:
    """A step and rows, for people."""
    return f"step {step}, rows {rows.start} to {rows.stop - 1}"


def _first_bad(parameters: Mapping[str, Tensor]) -> str | None:
    return next((name for name, item in parameters.items() if not is_finite(item.detach())), None)
