"""Distributions of relative errors, and how well an order of configurations is predicted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.truth.rows import Row


class Errors(NamedTuple):
    """Relative errors of predictions."""

    num_rows: int
    median: float
    ninety: float
    """90 % of the errors are at most this large."""
    bias: float
    """The median of predicted over measured, less 1."""


def errors_of(rows: Sequence[Row], predicted: Sequence[float]) -> Errors:
    """Return the distribution of relative errors."""
    ratios = np.array(predicted) / np.array([row.iteration_s for row in rows]) - 1
    size = np.abs(ratios)
    return Errors(len(rows), float(np.median(size)), float(np.quantile(size, 0.9)), float(np.median(ratios)))


class Ranking(NamedTuple):
    """How well the configurations of one model and batch are ordered, over all models and batches."""

    groups: int
    tau: float
    """Kendall's tau, mean over groups."""
    found: float
    """The part of the groups whose fastest configuration is predicted to be the fastest."""
    loss: float
    """The largest relative time lost by taking the configuration that is predicted to be the fastest."""


def ranking_of(rows: Sequence[Row], predicted: Sequence[float]) -> Ranking:
    """Compare the predicted with the measured order in every group of a model and a global batch size."""
    groups: dict[object, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault((row.model, row.global_batch_size), []).append(number)
    measured, foreseen = np.array([row.iteration_s for row in rows]), np.array(predicted)
    taus, losses = [], []
    for members in groups.values():
        if len(members) < 2:
            continue
        ours, theirs = foreseen[members], measured[members]
        first, second = np.triu_indices(len(members), 1)
        agree = np.sign(ours[first] - ours[second]) * np.sign(theirs[first] - theirs[second])
        taus.append(float(agree.mean()))
        losses.append(float(theirs[int(np.argmin(ours))] / theirs.min() - 1))
    return Ranking(len(taus), float(np.mean(taus)), float(np.mean([loss == 0 for loss in losses])), max(losses))
