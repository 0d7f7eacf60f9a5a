"""Least-squares fit of the bandwidth of a link to measured times, with residual and standard error."""

from collections.abc import Sequence

import numpy as np

from penstock.probe.types import Fit

Sample = tuple[int, float]
"""Bytes of a message and the seconds for which it occupies the link."""


def fit_link(samples: Sequence[Sample], latency_s: float) -> Fit:
    """Fit a line to (bytes, seconds) with least relative errors; `latency_s` is the time of an empty message.

    A message in a train occupies its link for a constant time (headers, calls) and for bytes / bandwidth. The constant
    is bounded by 0 and by the time of an empty message, so that noise cannot shift time of the bytes into it.

    >>> fit = fit_link([(1_000_000, 0.01002), (2_000_000, 0.02002), (4_000_000, 0.04002)], 5e-5)
    >>> round(fit.bandwidth), fit.latency_s, round(fit.residual, 6)
    (100000000, 5e-05, 0.0)
    """
    sizes = np.array([num_bytes for num_bytes, _ in samples], dtype=np.float64)
    seconds = np.array([taken for _, taken in samples], dtype=np.float64)
    # Divided by the measured times, so that every sample counts by its relative error.
    columns = np.stack([1 / seconds, sizes / seconds], axis=1)
    (own_s, per_byte_s), *_ = np.linalg.lstsq(columns, np.ones(len(samples)), rcond=None)
    if len(set(sizes.tolist())) == 1 or not 0 <= own_s <= latency_s:
        # The sum of squares is convex, so the optimum within the bounds is at the violated bound.
        own_s = latency_s if own_s > latency_s and len(set(sizes.tolist())) > 1 else 0.0
        columns = columns[:, 1:]
        per_byte_s = float((columns[:, 0] * (1 - own_s / seconds)).sum() / (columns[:, 0] ** 2).sum())
    if per_byte_s <= 0:  # the times contain nothing but latency
        own_s, per_byte_s = 0.0, float(seconds.min() / sizes.max())
    left_over = seconds / (own_s + sizes * per_byte_s) - 1
    return Fit(
        bandwidth=1 / float(per_byte_s),
        latency_s=latency_s,
        residual=float(np.sqrt((left_over**2).mean())),
        bandwidth_error=_slope_error(columns, left_over) / float(per_byte_s),
    )


def _slope_error(columns: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", left_over: object) -> float:
    """Return the standard error of the last coefficient."""
    values = np.asarray(left_over, dtype=np.float64)
    num_free = len(values) - columns.shape[1]
    if num_free < 1:
        return 0.0
    variance = float((values**2).sum()) / num_free
    covariance = np.linalg.pinv(columns.T @ columns) * variance
    return float(np.sqrt(max(0.0, covariance[-1, -1])))
