"""Predicted against measured, action by action."""

from penstock.report.analysis.prediction.compare import (
    MIN_ITERATIONS_FOR_SPREAD,
    compare_timelines,
    difference_sentences,
    median_iteration,
    row_name,
)
from penstock.report.analysis.prediction.slow_links import SlowLink, find_slow_links

__all__ = [
    "MIN_ITERATIONS_FOR_SPREAD",
    "SlowLink",
    "compare_timelines",
    "difference_sentences",
    "find_slow_links",
    "median_iteration",
    "row_name",
]
