"""How the losses of the parts of a batch combine into its loss.

A part is the rows of a micro-batch that one replica of the last stage processes. A loss function that returns a mean
over rows gives every part a weight proportional to its rows. A mean over labels, of which some are ignored, gives it a
weight proportional to the labels that count. A loss function that returns sums and counts needs no weights.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.model import is_row_list
from penstock.runtime.tensors import Rows, has_rows

IGNORED = -100
"""The label that does not count, as in torch's cross entropy."""


class Reduction(NamedTuple):
    """What the loss is a mean over."""

    labels: str = ""
    """The tensor of the batch whose labels count; empty if rows count."""
    is_shifted: bool = False
    """Whether the first label of each row does not count, as in models that predict the next token."""
    is_sum: bool = False
    """Whether the loss function returns a sum and a count instead of a mean."""

    @property
    def text(self) -> str:
        """What the loss is, in words.

        >>> Reduction("[0]['labels']", is_shifted=True).text
        "mean over [0]['labels'] that are not -100, without the first of each row"
        """
        if self.is_sum:
            return "sum and count"
        if not self.labels:
            return "mean over rows"
        return f"mean over {self.labels} that are not {IGNORED}" + (
            ", without the first of each row" if self.is_shifted else ""
        )


LABEL_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8)
TARGETS = "[1]"
"""The start of the names of tensors in the targets."""

ROWS = Reduction()
SUMS = Reduction(is_sum=True)


def named_tensors(batch: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a batch with their positions in it, such as [0]['labels'].

    Those in lists with an item for each row are left out.
    """
    for path, leaf in pytree.tree_flatten_with_path(batch, is_leaf=is_row_list)[0]:
        if isinstance(leaf, Tensor):
            yield pytree.keystr(path), leaf


def masked_labels(batch: Any, num_rows: int) -> dict[str, Tensor]:
    """Return the integer tensors of a batch in which a label is ignored, by their position in the batch."""
    return {
        name: leaf
        for name, leaf in named_tensors(batch)
        if has_rows(leaf, num_rows) and leaf.dtype in LABEL_TYPES and bool((leaf == IGNORED).any())
    }


def count_labels(labels: Tensor, *, is_shifted: bool) -> int:
    """Return the number of labels that count."""
    counted = labels[:, 1:] if is_shifted else labels
    return int((counted != IGNORED).sum())


def weigh(reduction: Reduction, labels: Mapping[str, Tensor], rows: Rows, num_rows: int) -> float:
    """Return the weight of some rows in the mean over a batch. NaN if no label of the batch counts."""
    if reduction.labels not in labels:
        # No label is ignored, so every row has the same number of them.
        return rows.num / num_rows
    tensor = labels[reduction.labels]
    total = count_labels(tensor, is_shifted=reduction.is_shifted)
    own = count_labels(tensor[rows.start : rows.stop], is_shifted=reduction.is_shifted)
    return own / total if total else float("nan")


def candidates(names: Iterable[str], labels: Mapping[str, Tensor]) -> list[Reduction]:
    """Return the reductions that a mean may have, given the tensors with ignored labels."""
    reductions = [ROWS]
    for name in sorted(names):
        reductions.append(Reduction(name))
        if name in labels and labels[name].dim() > 1:
            reductions.append(Reduction(name, is_shifted=True))
    return reductions


def fill_empty(
    batch: Any, reductions: Iterable[Reduction], labels: Mapping[str, Tensor], parts: Iterable[Rows]
) -> tuple[Any, frozenset[tuple[str, int]]]:
    """Return a batch in which every part has a label that counts.

    The mean over no labels is not a number, which would spoil the sum over all parts although its weight is zero. A
    part without labels gets one, in its first row; as its weight remains zero, the value of that label does not matter.

    Returns:
        The batch, and the tensors and first rows that were changed.
    """
    changed: dict[str, Tensor] = {}
    filled: set[tuple[str, int]] = set()
    for reduction in reductions:
        tensor = labels.get(reduction.labels)
        if tensor is None:
            continue
        for rows in parts:
            own = tensor[rows.start : rows.stop]
            if rows.num and not count_labels(own, is_shifted=reduction.is_shifted):
                copy = changed.setdefault(reduction.labels, tensor.clone())
                copy[rows.start].view(-1)[-1] = 0
                filled.add((reduction.labels, rows.start))
    if not changed:
        return batch, frozenset()
    leaves, tree = pytree.tree_flatten_with_path(batch)
    filled_leaves = [changed.get(pytree.keystr(path), leaf) for path, leaf in leaves]
    return pytree.tree_unflatten(filled_leaves, tree), frozenset(filled)
