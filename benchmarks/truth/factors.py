"""Fitting of factors: damped least squares of the logarithms of predicted over measured seconds."""

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.truth.prediction import Factors, Predictor
from benchmarks.truth.rows import Row
from penstock.arrays import Floats
from penstock.profile import MeasuredAllReduce

STEP = 0.01
"""Relative step of derivatives."""
MAX_CHANGE = 0.3
ROUNDS = 8
PRIOR = 0.05
"""Weight of a change of a factor against errors of rows, for as many rows as are fitted."""


def fit_factors(
    rows: Sequence[Row], tables: tuple[MeasuredAllReduce, ...], names: Sequence[str], start: Factors
) -> Factors:
    """Return the factors with which these rows are predicted best; the others stay as they are.

    Changes of a factor count as errors of a twentieth of their size, so that rows that do not depend on it do not
    move it. Large errors count less than their square, so that rows that no factor explains do not decide.
    """
    first = np.log([getattr(start, name) for name in names])
    logs = first

    def errors(values: Floats) -> Floats:
        factors = start._replace(**dict(zip(names, np.exp(values).tolist(), strict=True)))
        predictor = Predictor(tables, factors)
        misses = np.log([predictor.seconds(row) / row.iteration_s for row in rows])
        return np.concatenate([misses, PRIOR * math.sqrt(len(rows)) * (values - first)])

    best, lowest = logs, np.inf
    for _ in range(ROUNDS):
        now = errors(logs)
        cost = float(np.abs(now).mean())
        if cost < lowest:
            best, lowest = logs, cost
        slopes = np.stack([(errors(logs + STEP * unit) - now) / STEP for unit in np.eye(len(logs))], axis=1)
        weights = 1 / np.sqrt(np.maximum(np.abs(now), 0.01))
        change, *_ = np.linalg.lstsq(slopes * weights[:, None], -now * weights, rcond=None)
        logs = logs + np.clip(change, -MAX_CHANGE, MAX_CHANGE)
    return start._replace(**dict(zip(names, np.exp(best).tolist(), strict=True)))
