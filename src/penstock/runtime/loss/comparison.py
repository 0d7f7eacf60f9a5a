"""Compares the gradient of a micro-batch with those of its parts, to find or check the reduction of a loss."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from penstock.runtime.loss.gradients import Gradients, LossGradient
from penstock.runtime.loss.reduction import IGNORED, Reduction, weigh
from penstock.runtime.tensors import Rows, microbatch_rows

MAX_PARTS = 4
TOLERANCE, LOW_PRECISION_TOLERANCE = 2e-3, 3e-2
"""Relative difference that rounding may cause in float32 and larger types, and in smaller ones."""


def measure_errors(
    gradients: Gradients, num_rows: int, num_parts: int, reductions: Sequence[Reduction], labels: Mapping[str, Tensor]
) -> dict[Reduction, float] | None:
    """Return for each reduction the relative difference between a micro-batch and its parts, combined accordingly.

    Args:
        gradients: The gradients of the micro-batch.
        num_rows: The number of its rows.
        num_parts: The number of parts.
        reductions: The reductions to measure.
        labels: The labels of the micro-batch.

    Returns:
        The differences; None if the gradient of the micro-batch is zero or not finite, which shows nothing.
    """
    whole = gradients(Rows(0, num_rows))
    if not torch.isfinite(whole.elements).all():
        return None
    rows = [part for part in microbatch_rows(num_rows, num_parts) if part.num]
    parts = [gradients(part) for part in rows]
    errors = {}
    for reduction in reductions:
        weights = [1.0 if reduction.is_sum else weigh(reduction, labels, part, num_rows) for part in rows]
        error = _difference(whole, parts, weights)
        if error is None:
            return None
        errors[reduction] = error
    return errors


def _difference(whole: LossGradient, parts: Sequence[LossGradient], weights: Sequence[float]) -> float | None:
    # The loss of a part whose weight is zero may be not a number.
    weighed = [(weight, part) for weight, part in zip(weights, parts, strict=True) if weight]
    if whole.count is not None:
        counts = [part.count or 0.0 for _, part in weighed]
        if not math.isclose(sum(counts), whole.count, rel_tol=TOLERANCE, abs_tol=1e-12):
            return math.inf
    if not all(torch.isfinite(part.elements).all() for _, part in weighed) or not all(map(math.isfinite, weights)):
        return math.inf
    scale = sum(weight * _norm(part.elements) for weight, part in weighed)
    combined = torch.zeros_like(whole.elements)
    for weight, part in weighed:
        combined += weight * part.elements
    # Gradients of parts may cancel, so their sum of norms is the size to compare with.
    size = max(scale, _norm(whole.elements))
    return _norm(whole.elements - combined) / size if size else None


def distinct_labels(labels: Tensor) -> Tensor:
    """Return labels that give each reduction other weights: more of them count in the first half of the rows."""
    filled = torch.where(labels == IGNORED, torch.zeros_like(labels), labels)
    half = -(-len(filled) // 2)
    if filled.dim() == 1 or filled.shape[1] == 1:
        filled[half:] = IGNORED
        return filled
    many, few = ((0, 1, 2), (1,)) if filled.shape[1] > 2 else ((0, 1), (0,))
    kept = torch.zeros(filled.shape[:2], dtype=torch.bool, device=filled.device)
    for columns, rows in ((many, slice(0, half)), (few, slice(half, None))):
        for column in columns:
            if column < filled.shape[1]:
                kept[rows, column] = True
    return torch.where(kept.view(*kept.shape, *[1] * (filled.dim() - 2)), filled, torch.full_like(filled, IGNORED))


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
