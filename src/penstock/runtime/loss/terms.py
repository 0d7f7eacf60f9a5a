"""The loss of one iteration: the reduction, the weight of each part, and the counts of parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.model import LossFunction, read_loss
from penstock.runtime.loss.reduction import ROWS, TARGETS, Reduction, fill_empty, weigh
from penstock.runtime.stage import ComputeLoss, scale_loss
from penstock.runtime.tensors import Rows


@dataclass(eq=False)
class LossTerms:
    """What a rank knows about the loss of an iteration.

    Args:
        reduction: The reduction; None if a rank of the last stage has yet to try it.
        candidates: The reductions to try, in the same order on every rank.
        labels: The tensors of the batch in which a label is ignored.
        is_checked: Whether ranks of the last stage check the reduction in this iteration.
        filled: The tensors and rows that `fill_empty` has changed in the batch.
        is_trial: Whether ranks of the last stage announce the reduction to all others in this iteration.
        parts: The rows of each replica of the last stage in each micro-batch.
        fed: The tensors of `labels` as the iteration has them, after `fill_empty`.
    """

    reduction: Reduction | None = ROWS
    candidates: Sequence[Reduction] = (ROWS,)
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    is_checked: bool = False
    filled: frozenset[tuple[str, int]] = frozenset()
    is_trial: bool = False
    parts: Sequence[Rows] = ()
    fed: Mapping[str, Tensor] = field(default_factory=dict)
    counts: dict[int, Tensor | float] = field(default_factory=dict)
    """By micro-batch: the count that the loss function returned with its sum."""
    total_count: float = 0.0
    """The sum of the counts of all ranks, once it is known."""

    def fill_targets(self, inputs: Any, targets: Any) -> Any:
        """Return targets in which every part has a label that counts, if this could not be done before the trial."""
        if not self.is_trial or self.filled or self.reduction is None or not self.reduction.labels.startswith(TARGETS):
            return targets
        (_, filled_targets), self.filled = fill_empty((inputs, targets), [self.reduction], self.labels, self.parts)
        return filled_targets

    def own_count(self) -> float:
        """Return the sum of the counts of this rank."""
        return sum(float(self.counts[number]) for number in sorted(self.counts))

    def sum_factor(self, num_rows: int) -> float | None:
        """Return what sums and their gradients are multiplied by at the end; None for a mean.

        The mean over nothing is not a number, as in torch.
        """
        if self.reduction is None or not self.reduction.is_sum:
            return None
        return sum_scale(num_rows) / self.total_count if self.total_count else float("nan")


def sum_scale(num_rows: int) -> float:
    """Return what sums are divided by in the backward, before their count is known: a power of two.

    It keeps gradients of sums in the range of small types, and changes no other bit of them.
    """
    return float(1 << (num_rows.bit_length() - 1))


def make_compute_loss(
    loss: LossFunction,
    targets: Any,
    terms: LossTerms,
    rows: Rows,
    num_rows: int,
    on_count: Callable[[Tensor | float], None],
) -> ComputeLoss:
    """Return a function of the last layer's output that gives the part of some rows in the loss of a batch.

    Args:
        loss: The loss function.
        targets: The targets of the rows.
        terms: The terms of the iteration, whose reduction is known.
        rows: The rows.
        num_rows: The number of rows of the batch.
        on_count: Called with the count, if the loss function returns one.
    """
    reduction = terms.reduction
    assert reduction is not None, "the first part of a batch is tried before it is computed"
    if reduction.is_sum:
        scale = sum_scale(num_rows)

        def compute_sum(output: Any) -> Tensor:
            value, count = read_loss(loss(output, targets))
            if count is None:
                raise InputError(
                    "the loss function returned one number, but a sum and a count before",
                    hint="Return the same kind of value in every step.",
                )
            on_count(count.detach() if isinstance(count, Tensor) else count)
            return value / scale

        return compute_sum
    weight = weigh(reduction, terms.labels, rows, num_rows)
    if not reduction.labels:
        return scale_loss(loss, targets, weight)

    def compute_mean(output: Any) -> Tensor:
        value = scale_loss(loss, targets, 1.0)(output)
        # A tensor and not a number: autograd saves it, so that a backward on another rank has it too.
        dtype = torch.promote_types(value.dtype, torch.float32)
        return value * torch.full((), weight, dtype=dtype, device=value.device)

    return compute_mean
