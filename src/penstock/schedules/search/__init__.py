"""List scheduling and local search over orders."""

from penstock.schedules.search.estimate import Estimator
from penstock.schedules.search.greedy import Greedy, Rules
from penstock.schedules.search.polish import polished
from penstock.schedules.search.scoring import REFUSED, Score, score_program

__all__ = ["REFUSED", "Estimator", "Greedy", "Rules", "Score", "polished", "score_program"]
