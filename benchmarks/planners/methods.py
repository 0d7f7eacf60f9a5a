"""The planners as the benchmark calls them: each with every schedule, without planning or ordering anything twice."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from penstock.plan import Plan, Shape
from penstock.planners import Problem, SearchSpace
from penstock.planners.auto import auto
from penstock.planners.methods import balanced, data_parallel, uniform
from penstock.planners.methods.bipartition import two_set_plans
from penstock.planners.methods.dapple import dapple
from penstock.planners.methods.pipedream import pipedream
from penstock.planners.methods.spp import spp
from penstock.schedules import SCHEDULES
from penstock.simulate import Evaluation, evaluate


class Method(NamedTuple):
    """A planner for comparison."""

    name: str
    plans: Callable[[Problem], Sequence[Plan]]
    """Plans of which the fastest under the schedule counts, by simulation. Only Bi-Partition has several."""
    replicates: bool
    is_shaped: bool
    """Whether its plan depends on the schedule's shape. It does not depend on anything else of the schedule."""


def pipedream_straight(problem: Problem) -> Plan:
    """PipeDream with one device per stage."""
    return pipedream(problem, replication=False)


def spp_straight(problem: Problem) -> Plan:
    """SPP with one device per stage."""
    return spp(problem, replication=False)


def _one(plan: Callable[[Problem], Plan]) -> Callable[[Problem], Sequence[Plan]]:
    return lambda problem: [plan(problem)]


METHODS = (
    Method("uniform", _one(uniform), False, True),
    Method("balanced", _one(balanced), False, True),
    Method("pipedream, straight", _one(pipedream_straight), False, False),
    Method("spp, straight", _one(spp_straight), False, False),
    Method("bipartition", two_set_plans, False, True),
    Method("data_parallel", _one(data_parallel), True, False),
    Method("pipedream", _one(pipedream), True, False),
    Method("dapple", _one(dapple), True, False),
    Method("spp", _one(spp), True, False),
)


class TriedPlan(msgspec.Struct, frozen=True):
    """One planner with one schedule on one problem."""

    planner: str
    schedule: str
    replicates: bool
    recompute: bool
    seconds: float
    fits: bool
    planning_s: float


def fastest_auto(problem: Problem, *, replication: bool) -> Plan:
    """The plan of `auto`, the reference of all comparisons."""
    return auto(problem, search_space=SearchSpace(replication=replication))


def try_all(problem: Problem) -> Iterator[TriedPlan]:
    """Every planner with every schedule, in the schedule's shape.

    With memory limits, also with recomputation, so that more plans fit.
    """
    limited = any(device.memory_bytes is not None for device in problem.cluster.devices)
    orders = _Orders(problem)
    for base in [problem, replace(problem, recompute=True)] if limited else [problem]:
        for method in METHODS:
            planned: dict[Shape | None, tuple[Sequence[Plan], float]] = {}
            for item in SCHEDULES.values():
                key = item.shape if method.is_shaped else None
                if key not in planned:
                    shaped = _shaped(base, item.shape) if method.is_shaped else base
                    start_time = time.perf_counter()
                    plans = method.plans(shaped)
                    planned[key] = plans, time.perf_counter() - start_time
                plans, planning_s = planned[key]
                seconds, fit = min(orders.outcome(plan, item.name) for plan in plans)
                yield TriedPlan(method.name, item.name, method.replicates, base.recompute, seconds, fit, planning_s)


def _shaped(problem: Problem, shape: Shape) -> Problem:
    chunks = 1 if shape is Shape.STRAIGHT else min(2, problem.profile.num_units)
    return replace(problem, shape=shape, num_chunks=chunks)


class _Orders:
    """Iteration times of plans under schedules. A plan that several planners find is simulated once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._known: dict[object, tuple[float, bool]] = {}

    def outcome(self, plan: Plan, schedule: str) -> tuple[float, bool]:
        """Seconds of an iteration, and whether it fits into memory."""
        key = plan.stages, schedule
        if key not in self._known:
            ordered = msgspec.structs.replace(plan, schedule=schedule)
            evaluation = evaluate(ordered, self._problem.profile, self._problem.cluster, within_memory=False)
            self._known[key] = evaluation.timeline.iteration_s, fits(evaluation)
        return self._known[key]


def fits(evaluation: Evaluation) -> bool:
    """Whether every device has enough memory."""
    return not evaluation.costs.over_bytes(evaluation.proof.peak_bytes).any()
