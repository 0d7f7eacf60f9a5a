"""Exact: the fastest plan and order of a small problem without replication; the reference for other planners.

The planner considers every map in which a device has at most one run of layers in each direction (maps.py): all forward
cuts, all backward cuts, any devices, saved tensors transferred or recomputed. Each map gets a lower bound (bounds.py).
In the order of these bounds, the solver searches for an order of jobs (cp_order.py) that beats the best so far, until
no bound is below it. The backward is split, transfers take turns on their links, and optimizer steps and weight returns
count. Memory limits do not, so the result is a lower bound for plans within memory. Several stages per device, and
more stages than the cuts require, are not considered. Nor are fused backwards, except of stages whose layers require
them: where splitting has a cost (`Costs.joined_s`), an order with fused backwards may be faster than the result.

Maps that break a restriction of the layers are left out.

If devices share interfaces, the solver only requires that all transfers over an interface pass in the end. Its bound
stays valid, but the order may take longer, and is then not `proved`.

Cost: exponential. About a second for 6 layers, 3 devices and 3 micro-batches. Requires OR-tools: penstock[exact].
"""

import time
from dataclasses import dataclass
from itertools import islice

import numpy as np

from penstock.errors import InputError
from penstock.plan import Plan
from penstock.plan.pricing import Costs, find_restrictions, price
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
"""The solver must beat the best time by this fraction."""
PROVED = 1e-6
"""A time within this fraction of the lower bound is proved optimal."""
FIRST_TRIES = 8
MAX_SECONDS_A_MAP = 30.0


@dataclass(frozen=True, eq=False)
class Exact:
    """The result of the exact planner.

    Attributes:
        plan: The fastest plan.
        order: Its compute program.
        program: The lowered program, with receives posted so early that no action waits for them.
        makespan_s: The simulated iteration time.
        at_least_s: Lower bound over all plans and orders that were considered.
        num_maps: The number of maps.
        num_solved: The number of maps that needed the solver.
    """

    plan: Plan
    order: Program
    program: Program
    makespan_s: float
    at_least_s: float
    num_maps: int
    num_solved: int

    @property
    def proved(self) -> bool:
        """Whether the plan is optimal among those considered, up to rounding."""
        return self.makespan_s <= self.at_least_s * (1 + PROVED)


def exact(problem: Problem, *, remote_backward: bool = True, recompute: bool = True, seconds: float = 600.0) -> Exact:
    """Find the fastest plan and order of a small problem.

    Args:
        problem: The problem.
        remote_backward: Whether forward and backward of a layer may be on different devices.
        recompute: Whether stages with a remote backward may recompute.
        seconds: Time limit. After it, the result is the fastest plan so far.

    Returns:
        The plan with its programs and a lower bound.

    Raises:
        InputError: If the problem is too large, `seconds` is not positive, or OR-tools is not installed.
    """
    if not seconds > 0:
        raise InputError(f"time limit of the exact planner ({seconds} s) must be positive")
    deadline = time.monotonic() + seconds
    maps = all_maps(problem, remote_backward=remote_backward, recompute=recompute)
    bounds = map_bounds(unit_times(problem, replication=False), maps)
    map_indices = [int(index) for index in np.argsort(bounds, kind="stable")]
    allowed = (index for index in map_indices if _is_allowed(problem, plan_of_map(problem, maps, index)))
    best = min(
        (_schedule_map(problem, maps, map_index) for map_index in islice(allowed, FIRST_TRIES)),
        key=lambda result: result.makespan_s,
    )
    lowest, solved = best.makespan_s, 0
    for map_index in map_indices:
        limit = best.makespan_s * (1 - CLOSE)
        left = deadline - time.monotonic()
        if bounds[map_index] >= limit or left <= 0:
            lowest = min(lowest, float(bounds[map_index]))
            break
        planned = plan_of_map(problem, maps, map_index)
        if not _is_allowed(problem, planned):
            continue
        costs = price(planned, problem.profile, problem.cluster)
        result = best_order(costs, limit, seconds=min(left, MAX_SECONDS_A_MAP))
        solved += 1
        lowest = min(lowest, max(result.at_least_s, float(bounds[map_index])))
        if result.orders is not None:
            order = order_program(costs, result.orders)
            best = min(
                best, _time_order(costs, order, lowered_order(costs, result.orders)), key=lambda entry: entry.makespan_s
            )
    lowest = min(lowest, best.makespan_s)
    return Exact(best.plan, best.order, best.program, best.makespan_s, lowest, len(map_indices), solved)


@dataclass(frozen=True, eq=False)
class _Timed:
    plan: Plan
    order: Program
    program: Program
    makespan_s: float


def _time_order(costs: Costs, order: Program, program: Program) -> _Timed:
    run = evaluate_costs(costs, program=program, within_memory=False)
    return _Timed(costs.plan, order, run.program, run.timeline.iteration_s)


def _is_allowed(problem: Problem, plan: Plan) -> bool:
    return find_restrictions(plan, problem.profile).violation is None


def _schedule_map(problem: Problem, maps: Maps, map_index: int) -> _Timed:
    """A map with the order of a schedule: the first time to beat."""
    costs = price(plan_of_map(problem, maps, map_index), problem.profile, problem.cluster)
    order = schedule(costs, "1f1b" if costs.restrictions.fused else "zb_h1")
    return _time_order(costs, order, order)
