"""Showing plans and timelines: analysis, text, terminal, Chrome trace, HTML."""

from penstock.report.printable_text import escape_text
from penstock.report.subject import ReportSubject, with_unique_names

__all__ = ["ReportSubject", "escape_text", "with_unique_names"]
