"""Predicted against measured, action by action."""

from penstock.report.analysis.prediction.compare import (
    FEWEST_SPREAD,
    compare_timelines,
    difference_sentences,
    row_name,
    typical,
)

__all__ = ["FEWEST_SPREAD", "compare_timelines", "difference_sentences", "row_name", "typical"]
