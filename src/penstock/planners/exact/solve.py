"""Exact: the fastest plan and order of a small problem without replication; the yardstick of the others.

Every map in which a device has at most one run of units in each direction is considered (exact_maps.py): all forward
cuts, all backward cuts, any devices, saved tensors shipped or recomputed. Each gets a lower bound (exact_bounds.py).
In the order of their bounds, an order of jobs is searched (exact_order.py) that beats the best so far, until no bound
is below it. I and W are apart, transfers take turns on their links, steps and the return of parameters count.
Memory limits do not, so what is found is a bound for plans that keep to them. Several stages a device, and finer
stages than the cuts ask for, are not considered.

Where devices share interfaces, the solver only sees that all which crosses one must pass in the end: its bound stays
true, but the order found may take longer, and is then not `proved`.

Cost: exponential. About a second for 6 units, 3 devices and 3 micro-batches. It needs OR-tools: penstock[exact].
"""

import time
from dataclasses import dataclass

import numpy as np

from penstock.errors import InputError
from penstock.plan import Plan
from penstock.plan.pricing import Costs, price
from penstock.planners.bounds import unit_times
from penstock.planners.exact.bounds import map_bounds
from penstock.planners.exact.cp_order import best_order
from penstock.planners.exact.maps import Maps, all_maps, plan_of_map
from penstock.planners.exact.program import lowered_order, order_program
from penstock.planners.problem import Problem
from penstock.program import Program
from penstock.schedules import schedule
from penstock.simulate import evaluate_costs

CLOSE = 1e-7
"""Gains below this part of the time are not looked for."""
PROVED = 1e-6
"""What is within this part of the lower bound is proved."""
FIRST_TRIES = 8
MOST_SECONDS_A_MAP = 30.0


@dataclass(frozen=True, eq=False)
class Exact:
    """The fastest plan found, how to run it, and what is known about it."""

    plan: Plan
    order: Program
    """Compute actions only."""
    program: Program
    """The same, lowered, with receives posted so early that nothing waits for them."""
    makespan_s: float
    """Simulated."""
    at_least_s: float
    """No plan and order of those considered is faster."""
    num_maps: int
    num_solved: int
    """How many of the maps needed the solver."""

    @property
    def proved(self) -> bool:
        """Whether nothing that was considered is faster, but for rounding."""
        return self.makespan_s <= self.at_least_s * (1 + PROVED)


def exact(problem: Problem, *, moved: bool = True, recompute: bool = True, seconds: float = 600.0) -> Exact:
    """The fastest plan and order; after `seconds`, the fastest so far.

    With `moved` off, only plans whose backwards stay with their forwards; with `recompute` off, none that recompute.
    """
    if not seconds > 0:
        raise InputError(f"the exact planner needs some time, not {seconds} seconds")
    deadline = time.monotonic() + seconds
    maps = all_maps(problem, moved=moved, recompute=recompute)
    bounds = map_bounds(unit_times(problem), maps)
    turns = np.argsort(bounds, kind="stable").tolist()
    best = min((_scheduled(problem, maps, turn) for turn in turns[:FIRST_TRIES]), key=lambda found: found.makespan_s)
    lowest, solved = best.makespan_s, 0
    for turn in turns:
        limit = best.makespan_s * (1 - CLOSE)
        left = deadline - time.monotonic()
        if bounds[turn] >= limit or left <= 0:
            lowest = min(lowest, float(bounds[turn]))
            break
        costs = price(plan_of_map(problem, maps, turn), problem.profile, problem.cluster)
        found = best_order(costs, limit, seconds=min(left, MOST_SECONDS_A_MAP))
        solved += 1
        lowest = min(lowest, max(found.at_least_s, float(bounds[turn])))
        if found.orders is not None:
            order = order_program(costs, found.orders)
            best = min(
                best, _timed(costs, order, lowered_order(costs, found.orders)), key=lambda entry: entry.makespan_s
            )
    lowest = min(lowest, best.makespan_s)
    return Exact(best.plan, best.order, best.program, best.makespan_s, lowest, len(turns), solved)


@dataclass(frozen=True, eq=False)
class _Found:
    plan: Plan
    order: Program
    program: Program
    makespan_s: float


def _timed(costs: Costs, order: Program, program: Program) -> _Found:
    run = evaluate_costs(costs, program=program, within_memory=False)
    return _Found(costs.plan, order, run.program, run.timeline.iteration_s)


def _scheduled(problem: Problem, maps: Maps, turn: int) -> _Found:
    """A map with the order of a schedule: something to beat."""
    costs = price(plan_of_map(problem, maps, turn), problem.profile, problem.cluster)
    order = schedule(costs, "zb_h1")
    return _timed(costs, order, order)
