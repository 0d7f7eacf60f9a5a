"""Timelines as Chrome traces."""

from penstock.report.trace.chrome import chrome_trace
from penstock.report.trace.flows import messages

__all__ = ["chrome_trace", "messages"]
