"""The simulator: a plain reference and its compiled twin."""

from penstock.simulate.compiled import simulate
from penstock.simulate.evaluation import Evaluation, evaluate, evaluate_costs
from penstock.simulate.reference import simulate_plainly

__all__ = ["Evaluation", "evaluate", "evaluate_costs", "simulate", "simulate_plainly"]
