"""Sentences about a plan and its timeline."""

from penstock.report.text.comparability import mixed_words, with_problem_names
from penstock.report.text.explanation import explain, explain_timeline, gap, prover
from penstock.report.text.placement import shown_group

__all__ = ["explain", "explain_timeline", "gap", "mixed_words", "prover", "shown_group", "with_problem_names"]
