"""Sentences about a plan and its timeline."""

from penstock.report.text.comparability import mixed_problems_warning, with_problem_names
from penstock.report.text.explanation import explain, explain_timeline
from penstock.report.text.placement import format_group
from penstock.report.text.uncertainty import declined_sentence, inside_sentence, interval_sentence

__all__ = [
    "declined_sentence",
    "explain",
    "explain_timeline",
    "format_group",
    "inside_sentence",
    "interval_sentence",
    "mixed_problems_warning",
    "with_problem_names",
]
