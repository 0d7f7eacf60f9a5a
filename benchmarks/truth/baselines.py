"""What one would use without simulation: the formula of the pipeline, and a regression."""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.truth.prediction import Predictor
from benchmarks.truth.rows import Row


def formula_s(row: Row, predictor: Predictor) -> float:
    """(M + S - 1) times the mean stage: the time of the whole model for a micro-batch, over the stages."""
    whole = sum(
        float(unit.times[0].forward_s + unit.times[0].input_grad_s + unit.times[0].weight_grad_s)
        for unit in predictor.profile(row).units
    )
    return (row.num_microbatches + row.pipeline - 1) * whole / row.pipeline


def fit_regression(rows: Sequence[Row]) -> Callable[[Row], float]:
    """A regression on operations, tokens and layer passes of the busiest stage, with weights for relative errors."""
    seconds = np.array([row.iteration_s for row in rows])
    terms = np.array([_terms(row) for row in rows])
    weights, *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(rows)), rcond=None)
    return lambda row: float(np.dot(_terms(row), weights))


def _terms(row: Row) -> tuple[float, float, float]:
    slots = row.num_microbatches + row.pipeline - 1
    layers = row.model.layers / row.pipeline
    tokens = row.micro_batch_size * row.model.sequence
    products = layers * tokens * row.model.hidden**2 / row.tensor
    return slots * products, slots * tokens * row.model.hidden / row.tensor, slots * layers
