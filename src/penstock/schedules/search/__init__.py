"""List scheduling and local search over orders."""

from penstock.schedules.search.estimate import Estimator
from penstock.schedules.search.greedy import Greedy, Rules
from penstock.schedules.search.memory_fit import LimitedGreedy, MemoryFit
from penstock.schedules.search.polish import polished
from penstock.schedules.search.rounds import is_straight, rounds
from penstock.schedules.search.scoring import REFUSED, Score, score_program

__all__ = [
    "REFUSED",
    "Estimator",
    "Greedy",
    "LimitedGreedy",
    "MemoryFit",
    "Rules",
    "Score",
    "is_straight",
    "polished",
    "rounds",
    "score_program",
]
