"""The simulator: a plain reference and its compiled twin."""

from penstock.simulate.evaluation import Evaluation, evaluate, evaluate_costs
from penstock.simulate.reference import simulate_plainly
from penstock.simulate.simulator import simulate

__all__ = ["Evaluation", "evaluate", "evaluate_costs", "simulate", "simulate_plainly"]
