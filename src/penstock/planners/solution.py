"""`Solution`: a plan with its costs and its program, so that nothing is computed twice."""

from dataclasses import dataclass, replace

from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.problem import Problem
from penstock.program import Program, with_order
from penstock.schedules import schedule


@dataclass(frozen=True, eq=False)
class Solution:
    """A plan, its costs and its program.

    Attributes:
        plan: The plan; it holds the order of its compute actions.
        costs: The priced plan.
        program: The compute program, in the plan's order.
    """

    plan: Plan
    costs: Costs
    program: Program


def make_solution(costs: Costs, program: Program) -> Solution:
    """A priced plan with the program that was found for it."""
    plan = with_order(costs.plan, program)
    return Solution(plan, replace(costs, plan=plan), replace(program, plan=plan))


def order_plan(plan: Plan, problem: Problem) -> Solution:
    """A plan of a problem, priced, and ordered by its schedule."""
    costs = price(plan, problem.profile, problem.cluster, clock=problem.clock)
    return make_solution(costs, schedule(costs))
