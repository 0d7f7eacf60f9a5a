"""`Solution`: a plan with its costs and its program, so that nothing is computed twice."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.errors import InputError, ProofError
from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.problem import Problem
from penstock.program import Program, find_dependencies, find_jobs, with_order
from penstock.program.lowering import place_messages
from penstock.program.proof import check_restrictions
from penstock.schedules import schedule


class Declined(NamedTuple):
    """A plan that is faster by simulated time, but not by more than the uncertainty of the prediction.

    Attributes:
        what: What is more intricate about it.
        seconds: Its simulated iteration time.
        judged_s: Its expected time, or the quantile by which plans are judged.
        chosen_s: The same of the chosen plan.
        uncertainty: Relative standard deviation of the difference.
    """

    what: str
    seconds: float
    judged_s: float
    chosen_s: float
    uncertainty: float

    @property
    def gain(self) -> float:
        """By how much it is expected to be faster; negative if it is slower."""
        return 1 - self.judged_s / self.chosen_s if self.chosen_s > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan, its costs and its program.

    Attributes:
        plan: The plan; it holds the order of its compute actions.
        costs: The priced plan.
        program: The compute program, in the plan's order.
        declined: Faster plans by simulated time that the planner auto did not choose.
    """

    plan: Plan
    costs: Costs
    program: Program
    declined: tuple[Declined, ...] = ()


def make_solution(costs: Costs, program: Program) -> Solution:
    """A priced plan with the program that was found for it.

    Raises:
        InputError: Training refuses the plan, or the order of its actions.
    """
    _check_restrictions(program, costs)
    plan = with_order(costs.plan, program)
    return Solution(plan, replace(costs, plan=plan), replace(program, plan=plan))


def order_plan(plan: Plan, problem: Problem) -> Solution:
    """A plan of a problem, priced, and ordered by its schedule.

    Raises:
        InputError: Training refuses the plan, or the order of its actions.
    """
    costs = price(plan, problem.profile, problem.cluster, clock=problem.clock)
    return make_solution(costs, schedule(costs))


def _check_restrictions(program: Program, costs: Costs) -> None:
    """Raise InputError if a layer forbids the plan or its order. The proof checks this too, but later."""
    if not costs.restrictions.num_checked:
        return
    lowered = place_messages(program, costs)
    try:
        check_restrictions(lowered, costs, find_dependencies(lowered, costs, find_jobs(lowered, costs)))
    except ProofError as error:
        raise InputError(f"planner {costs.plan.planner}: {error.what}", hint=error.hint) from None
