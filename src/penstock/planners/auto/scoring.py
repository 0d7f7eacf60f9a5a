"""How good a plan is within the freedoms: quickly, for searches that look at thousands, and in full.

The quick score orders the work by list scheduling alone, with usual, with more and with twice that memory, lowers and
executes it. The full one is that of the schedule that the plan will have. Neither proves: lowering is known to give
programs that prove, and whatever a search returns is proved in the end.
"""

import numpy as np

from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.schedules import SCHEDULES
from penstock.schedules.methods import SPLIT, best_of, best_order, interleaved, one_f_one_b, rooms
from penstock.schedules.ordering import with_split
from penstock.schedules.search import Estimator, Greedy, Rules, Score, score_program

QUICK_RULES = ((4, 0.0), (1, 0.0), (1, 0.5), (0, 0.5))
"""Which of the rooms of the schedule auto, and how much patience."""


class Judge:
    """Scores the plans of one problem."""

    def __init__(self, problem: Problem, search_space: SearchSpace) -> None:
        self._problem = problem
        self._search_space = search_space
        self._is_free = search_space.schedule in (None, "auto", "auto_whole")
        self._split = search_space.plan_schedule == "auto"

    def quick(self, plan: Plan, beat: Score | None = None) -> Score:
        """The best score over a few orders.

        A plan that is slower than `beat` by the scheduler's own count, which knows no queues on links and no
        reductions, or that needs more memory for parameters alone than `beat` is over its limits, is not looked at any
        closer; its score is then only known to be no better.
        """
        costs = self._price(plan)
        least_over = _least_over_bytes(costs)
        if beat is not None and least_over > beat.over_bytes:
            return Score(least_over, np.inf)
        if not self._is_free:
            return self._fixed(costs)
        greedy = Greedy(costs)
        found = [greedy.timed(rules) for rules in self._rules(costs, greedy)]
        timed = sorted((item for item in found if item is not None), key=lambda item: item[1])
        best: Score | None = None
        for program, seconds in timed:
            if beat is not None and beat.over_bytes == 0 and seconds >= beat.seconds:
                return best or Score(0.0, seconds)
            score = score_program(program, costs)
            best = score if best is None or score < best else best
            if best.over_bytes == 0 and timed[0][1] == seconds:
                break  # the fastest fits: the others use less memory, and are not faster
        if best is None or best.over_bytes > 0:
            usual = score_program(one_f_one_b(with_split(costs, False)), costs)
            best = usual if best is None else min(best, usual)
        return best

    def careful(self, plan: Plan, beat: Score | None = None) -> Score:
        """As the quick score, with the usual schedules too: for plans that are made for one of them, such as Vs."""
        costs = self._price(plan)
        least_over = _least_over_bytes(costs)
        if beat is not None and least_over > beat.over_bytes:
            return Score(least_over, np.inf)
        if not self._is_free:
            return self._fixed(costs)
        greedy, estimator = Greedy(costs), Estimator(costs)
        programs = [greedy.run(rules) for rules in self._rules(costs, greedy)]
        usual = (one_f_one_b, interleaved, *(SPLIT if self._split else ()))
        programs += [order(with_split(costs, False)) for order in usual]
        found = [(estimator.seconds(program), program) for program in programs if program is not None]
        found.sort(key=lambda item: item[0])
        if beat is not None and beat.over_bytes == 0 and found[0][0] >= beat.seconds:
            return Score(0.0, found[0][0])
        return best_of(found, costs)[0]

    def can_beat(self, plan: Plan, best: Score) -> bool:
        """Whether some order of the plan's jobs may be better."""
        costs = self._price(plan)
        if _least_over_bytes(costs) > best.over_bytes:
            return False
        return best.over_bytes > 0 or Estimator(costs).floor_s() < best.seconds

    def full(self, plan: Plan, beat: Score | None = None) -> Score:
        """The score of the plan's own schedule; one that cannot beat another may come out worse than it is."""
        costs = self._price(plan)
        if not self._is_free:
            return self._fixed(costs)
        return best_order(costs, split=self._split, beat=beat)[0]

    def _rules(self, costs: Costs, greedy: Greedy) -> list[Rules]:
        """The few that most often give the best order."""
        room = rooms(costs, greedy.kept)
        return [Rules(self._split, room[place], patience) for place, patience in QUICK_RULES]

    def _price(self, plan: Plan) -> Costs:
        return price(plan, self._problem.profile, self._problem.cluster)

    def _fixed(self, costs: Costs) -> Score:
        return score_program(SCHEDULES[self._search_space.plan_schedule].order(costs), costs)


def _least_over_bytes(costs: Costs) -> float:
    """How far over its limit the fullest device is with parameters, gradients and optimizer state alone."""
    return float(costs.over_bytes(costs.static_bytes).max(initial=0.0))
