"""Adaptation: from measured iterations to speeds, and from speeds to the decision to change plans."""

from penstock.adaptation.adapter import Adapter, Outcome, Subject
from penstock.adaptation.decision import Decision, Situation, decide, evaluate_on
from penstock.adaptation.estimated_cluster import with_speeds
from penstock.adaptation.loss_prices import RESTART_S, FailureModel, LossPrice, expected_step_s, price_losses
from penstock.adaptation.measurement import LinkSlowness, Measurement, measure
from penstock.adaptation.moves import Move, find_moves, move_seconds
from penstock.adaptation.replanning import make_replanner
from penstock.adaptation.speeds import Speed, Speeds, estimate_speeds

__all__ = [
    "RESTART_S",
    "Adapter",
    "Decision",
    "FailureModel",
    "LinkSlowness",
    "LossPrice",
    "Measurement",
    "Move",
    "Outcome",
    "Situation",
    "Speed",
    "Speeds",
    "Subject",
    "decide",
    "estimate_speeds",
    "evaluate_on",
    "expected_step_s",
    "find_moves",
    "make_replanner",
    "measure",
    "move_seconds",
    "price_losses",
    "with_speeds",
]
