"""The steps of commands: planning, comparing, measuring, opening files."""

from penstock.cli.workflows.ablation import run_ablation
from penstock.cli.workflows.comparison import planned_problems, plans_of
from penstock.cli.workflows.engine_cost import cost_of_engine, require_no_end_ties
from penstock.cli.workflows.losses import PricedLosses, losses_data, price_all, show_losses, survivable_plan
from penstock.cli.workflows.measurement import MeasureOptions, measure_script
from penstock.cli.workflows.plan_advice import evaluate_or_advise, other_plan
from penstock.cli.workflows.planning import plan_problem
from penstock.cli.workflows.report_items import read_report_items, report_data
from penstock.cli.workflows.running import compare_running
from penstock.cli.workflows.scenario import run_scenario, with_scenario

__all__ = [
    "MeasureOptions",
    "PricedLosses",
    "compare_running",
    "cost_of_engine",
    "evaluate_or_advise",
    "losses_data",
    "measure_script",
    "other_plan",
    "plan_problem",
    "planned_problems",
    "plans_of",
    "price_all",
    "read_report_items",
    "report_data",
    "require_no_end_ties",
    "run_ablation",
    "run_scenario",
    "show_losses",
    "survivable_plan",
    "with_scenario",
]
