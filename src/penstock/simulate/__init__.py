"""The simulator: a plain reference, its compiled twin, and predicted intervals."""

from penstock.simulate.evaluation import Evaluation, evaluate, evaluate_costs
from penstock.simulate.prediction import Interval, Prediction, predict, predict_plainly
from penstock.simulate.reference import simulate_plainly
from penstock.simulate.simulator import simulate

__all__ = [
    "Evaluation",
    "Interval",
    "Prediction",
    "evaluate",
    "evaluate_costs",
    "predict",
    "predict_plainly",
    "simulate",
    "simulate_plainly",
]
