"""Results as text and tables for the terminal."""

from penstock.cli.render.ablation import run_ablation, show_ablation
from penstock.cli.render.cluster_age import warn_if_old
from penstock.cli.render.cluster_next import planning
from penstock.cli.render.comparison import comparison_data, planned_problems, plans_of, show_comparison
from penstock.cli.render.emulation import next_command, show_emulated
from penstock.cli.render.evaluation import contents_of, evaluation_data, show_evaluation
from penstock.cli.render.measurement import MeasureOptions, measure_script
from penstock.cli.render.plan_advice import evaluate_or_advise, other_plan
from penstock.cli.render.questions import answer
from penstock.cli.render.report_inputs import report_data, shown_items
from penstock.cli.render.training import show_trained, trained_data

__all__ = [
    "MeasureOptions",
    "answer",
    "comparison_data",
    "contents_of",
    "evaluate_or_advise",
    "evaluation_data",
    "measure_script",
    "next_command",
    "other_plan",
    "planned_problems",
    "planning",
    "plans_of",
    "report_data",
    "run_ablation",
    "show_ablation",
    "show_comparison",
    "show_emulated",
    "show_evaluation",
    "show_trained",
    "shown_items",
    "trained_data",
    "warn_if_old",
]
