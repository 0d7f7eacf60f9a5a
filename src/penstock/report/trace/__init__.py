"""Timelines as Chrome traces."""

from penstock.report.trace.chrome import chrome_trace

__all__ = ["chrome_trace"]
