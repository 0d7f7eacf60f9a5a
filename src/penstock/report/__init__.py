"""Showing plans and timelines: analysis, text, terminal, Chrome trace, HTML."""

from penstock.report.names import shown_name
from penstock.report.subject import Shown, with_own_names

__all__ = ["Shown", "shown_name", "with_own_names"]
