"""Scores of plans within a search space: quick ones, for searches over thousands of plans, and full ones.

The quick score orders the actions by list scheduling alone, with several memory limits, and then lowers and executes
the program. The full score uses the schedule that the plan will have. Neither runs the proof: lowered programs
pass the proof, and the result of a search is proved in the end.
"""

from typing import NamedTuple

import numpy as np

from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.program import Program
from penstock.schedules import SCHEDULES
from penstock.schedules.methods import SPLIT, best_of, best_order, interleaved, one_f_one_b, rooms
from penstock.schedules.ordering import with_split
from penstock.schedules.search import REFUSED, Estimator, Greedy, Rules, Score, score_program

QUICK_RULES = ((4, 0.0), (1, 0.0), (1, 0.5), (0, 0.5))
"""Rules of list scheduling to try: the index of a memory limit of the schedule auto, and the patience."""


class ScoredPlan(NamedTuple):
    """A plan in the order of its schedule, with its score, its costs and its compute program."""

    score: Score
    costs: Costs
    program: Program


class PlanScorer:
    """Scores the plans of one problem."""

    def __init__(self, problem: Problem, search_space: SearchSpace) -> None:
        self._problem = problem
        self._search_space = search_space
        self._is_free = search_space.schedule in (None, "auto", "auto_fused")
        self._split = search_space.plan_schedule == "auto"
        self._priced: Costs | None = None

    def quick(self, plan: Plan, beat: Score | None = None) -> Score:
        """The best score over a few orders.

        If a plan cannot beat the score `beat`, evaluation stops early, and the result is only known not to beat it.
        That is the case if it is slower by the scheduler's estimate, which ignores queues on links and reductions, or
        if its parameters alone exceed memory by more than `beat` does.
        """
        costs = self._price(plan)
        if costs.restrictions.violation is not None:
            return REFUSED
        least_over = _least_over_bytes(costs)
        if beat is not None and least_over > beat.over_bytes:
            return Score(least_over, np.inf)
        if not self._is_free:
            return self._fixed(costs)
        greedy = Greedy(costs)
        attempts = [greedy.timed(rules) for rules in self._rules(costs, greedy)]
        timed = sorted((item for item in attempts if item is not None), key=lambda item: item[1])
        best: Score | None = None
        for program, seconds in timed:
            if beat is not None and beat.over_bytes == 0 and seconds >= beat.seconds:
                return best or Score(0.0, seconds)
            score = score_program(program, costs)
            best = score if best is None or score < best else best
            if best.over_bytes == 0 and timed[0][1] == seconds:
                break  # the fastest order fits; the others use less memory and are not faster
        if best is None or best.over_bytes > 0:
            usual = score_program(one_f_one_b(with_split(costs, False)), costs)
            best = usual if best is None else min(best, usual)
        return best

    def careful(self, plan: Plan, beat: Score | None = None) -> Score:
        """The quick score, also over the common schedules: for plans that are made for one of them, such as Vs."""
        costs = self._price(plan)
        if costs.restrictions.violation is not None:
            return REFUSED
        least_over = _least_over_bytes(costs)
        if beat is not None and least_over > beat.over_bytes:
            return Score(least_over, np.inf)
        if not self._is_free:
            return self._fixed(costs)
        greedy, estimator = Greedy(costs), Estimator(costs)
        programs = [greedy.run(rules) for rules in self._rules(costs, greedy)]
        usual = (one_f_one_b, interleaved, *(SPLIT if self._split else ()))
        programs += [order(with_split(costs, False)) for order in usual]
        timed = [(estimator.seconds(program), program) for program in programs if program is not None]
        timed.sort(key=lambda item: item[0])
        if beat is not None and beat.over_bytes == 0 and timed[0][0] >= beat.seconds:
            return Score(0.0, timed[0][0])
        return best_of(timed, costs)[0]

    def can_beat(self, plan: Plan, best: Score) -> bool:
        """Whether some order of the plan's actions may beat a score."""
        costs = self._price(plan)
        if costs.restrictions.violation is not None or _least_over_bytes(costs) > best.over_bytes:
            return False
        return best.over_bytes > 0 or Estimator(costs).floor_s() < best.seconds

    def full(self, plan: Plan, beat: Score | None = None) -> ScoredPlan:
        """Order the plan by its own schedule, and score it.

        A plan that cannot beat the score `beat` may get a worse order than its best one.
        """
        costs = self._price(plan)
        if self._is_free:
            score, program = best_order(costs, split=self._split, beat=beat)
        else:
            program = self._ordered(costs)
            score = score_program(program, costs)
        return ScoredPlan(score, costs, program)

    def _rules(self, costs: Costs, greedy: Greedy) -> list[Rules]:
        """The rules that most often give the best order."""
        room = rooms(costs, greedy.kept)
        return [Rules(self._split, room[room_index], patience) for room_index, patience in QUICK_RULES]

    def _price(self, plan: Plan) -> Costs:
        if self._priced is None or self._priced.plan is not plan:
            self._priced = price(plan, self._problem.profile, self._problem.cluster, clock=self._problem.clock)
        return self._priced

    def _ordered(self, costs: Costs) -> Program:
        return SCHEDULES[self._search_space.plan_schedule].order(costs)

    def _fixed(self, costs: Costs) -> Score:
        return score_program(self._ordered(costs), costs)


def _least_over_bytes(costs: Costs) -> float:
    """Bytes by which parameters, gradients and optimizer state alone exceed the limit of the fullest device."""
    return float(costs.over_bytes(costs.static_bytes).max(initial=0.0))
