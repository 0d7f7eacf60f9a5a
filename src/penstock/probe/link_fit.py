"""Latency and bandwidth of a link from what was measured: least squares, with what it leaves over."""

from collections.abc import Sequence

import numpy as np

from penstock.probe.types import Fit

Sample = tuple[int, float]
"""Bytes of a message, and the seconds for which it held the link."""


def fit_link(samples: Sequence[Sample], latency_s: float) -> Fit:
    """The line through (bytes, seconds) that is nearest in relative terms; `latency_s` is that of an empty message.

    A message among others holds its link for a little time of its own (headers, calls) and for bytes / bandwidth. The
    little time is neither negative nor longer than an empty message takes in all: so bound, chance cannot turn a part
    of the bytes' time into it.

    >>> fit = fit_link([(1_000_000, 0.01002), (2_000_000, 0.02002), (4_000_000, 0.04002)], 5e-5)
    >>> round(fit.bandwidth), fit.latency_s, round(fit.residual, 6)
    (100000000, 5e-05, 0.0)
    """
    sizes = np.array([num_bytes for num_bytes, _ in samples], dtype=np.float64)
    seconds = np.array([taken for _, taken in samples], dtype=np.float64)
    # Divided by what was measured, every sample counts by its relative error, whatever its size.
    columns = np.stack([1 / seconds, sizes / seconds], axis=1)
    (own_s, per_byte_s), *_ = np.linalg.lstsq(columns, np.ones(len(samples)), rcond=None)
    if len(set(sizes.tolist())) == 1 or not 0 <= own_s <= latency_s:
        # The sum of squares is convex, so the best within bounds is at the one that was crossed.
        own_s = latency_s if own_s > latency_s and len(set(sizes.tolist())) > 1 else 0.0
        columns = columns[:, 1:]
        per_byte_s = float((columns[:, 0] * (1 - own_s / seconds)).sum() / (columns[:, 0] ** 2).sum())
    if per_byte_s <= 0:  # nothing but latency was seen
        own_s, per_byte_s = 0.0, float(seconds.min() / sizes.max())
    left_over = seconds / (own_s + sizes * per_byte_s) - 1
    return Fit(
        bandwidth=1 / float(per_byte_s),
        latency_s=latency_s,
        residual=float(np.sqrt((left_over**2).mean())),
        bandwidth_error=_slope_error(columns, left_over) / float(per_byte_s),
    )


def _slope_error(columns: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", left_over: object) -> float:
    """Standard error of the last coefficient."""
    values = np.asarray(left_over, dtype=np.float64)
    num_free = len(values) - columns.shape[1]
    if num_free < 1:
        return 0.0
    variance = float((values**2).sum()) / num_free
    covariance = np.linalg.pinv(columns.T @ columns) * variance
    return float(np.sqrt(max(0.0, covariance[-1, -1])))
