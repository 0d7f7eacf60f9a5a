"""A plan with what was worked out to find it, so that nothing is computed twice."""

from dataclasses import dataclass, replace

from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.problem import Problem
from penstock.program import Program, with_order
from penstock.schedules import schedule


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan, its costs and its program.

    Attributes:
        plan: The plan; it holds the order of its compute actions.
        costs: The priced plan.
        program: The compute program, in the plan's order.
    """

    plan: Plan
    costs: Costs
    program: Program


def planned(costs: Costs, program: Program) -> Planned:
    """A priced plan with the program that was found for it."""
    plan = with_order(costs.plan, program)
    return Planned(plan, replace(costs, plan=plan), replace(program, plan=plan))


def order_plan(plan: Plan, problem: Problem) -> Planned:
    """A plan of a problem, priced, and ordered by its schedule."""
    costs = price(plan, problem.profile, problem.cluster)
    return planned(costs, schedule(costs))
