"""Sentences about a plan and its timeline."""

from penstock.report.text.comparability import mixed_problems_warning, with_problem_names
from penstock.report.text.explanation import explain, explain_timeline
from penstock.report.text.placement import format_group

__all__ = ["explain", "explain_timeline", "format_group", "mixed_problems_warning", "with_problem_names"]
