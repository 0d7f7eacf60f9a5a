"""Running the ablation of the planner auto, with progress."""

from dataclasses import replace

from penstock.cli.console import Console
from penstock.cli.options import AutoOptions
from penstock.cli.workflows.search import search
from penstock.plan import Plan
from penstock.planners import Problem
from penstock.planners.studies import SETTINGS, Ablation, Setting, ablate


def run_ablation(console: Console, problem: Problem, options: AutoOptions) -> Ablation:
    """Search with every setting of the search space."""

    def find(setting: Setting) -> Plan:
        number = SETTINGS.index(setting) + 1
        what = f"{setting.name} ({number} of {len(SETTINGS)})"
        return search(console, problem, replace(options, search_space=setting.search_space), what=what).plan

    return ablate(problem, find)
