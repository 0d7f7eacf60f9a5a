"""Showing plans and timelines: analysis, text, terminal, Chrome trace, HTML."""

from penstock.report.subject import ReportSubject, with_unique_names

__all__ = ["ReportSubject", "with_unique_names"]
