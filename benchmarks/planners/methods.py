"""The planners as the benchmark calls them: every one with every schedule, none planned or ordered twice."""

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
    """A planner to compare with."""

    name: str
    plans: Callable[[Problem], Sequence[Plan]]
    """Of these it takes the one that is fastest when simulated under the schedule: Bi-Partition's own way to choose."""
    replicates: bool
    is_shaped: bool
    """Whether its plan depends on the shape that the schedule is made for; on nothing else of the schedule it does."""


def pipedream_straight(problem: Problem) -> Plan:
    """PipeDream with one device a stage."""
    return pipedream(problem, replication=False)


def spp_straight(problem: Problem) -> Plan:
    """SPP's steps with one device a stage: its order of devices from both ends, all numbers of stages, order by PE."""
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


class Tried(msgspec.Struct, frozen=True):
    """One planner with one schedule on one problem."""

    planner: str
    schedule: str
    replicates: bool
    recompute: bool
    seconds: float
    fits: bool
    planning_s: float


def fastest_auto(problem: Problem, *, replication: bool) -> Plan:
    """What all others are compared with."""
    return auto(problem, search_space=SearchSpace(replication=replication))


def try_all(problem: Problem) -> Iterator[Tried]:
    """Every planner with every schedule, in the shape that the schedule is made for.

    Where a device has a memory limit, also with recomputation, so that more of them fit.
    """
    limited = any(device.memory_bytes is not None for device in problem.cluster.devices)
    orders = _Orders(problem)
    for base in [problem, replace(problem, recompute=True)] if limited else [problem]:
        for method in METHODS:
            made: dict[Shape | None, tuple[Sequence[Plan], float]] = {}
            for item in SCHEDULES.values():
                key = item.shape if method.is_shaped else None
                if key not in made:
                    wanted = _shaped(base, item.shape) if method.is_shaped else base
                    began = time.perf_counter()
                    plans = method.plans(wanted)
                    made[key] = plans, time.perf_counter() - began
                plans, planning_s = made[key]
                seconds, fit = min(orders.outcome(plan, item.name) for plan in plans)
                yield Tried(method.name, item.name, method.replicates, base.recompute, seconds, fit, planning_s)


def _shaped(problem: Problem, shape: Shape) -> Problem:
    chunks = 1 if shape is Shape.STRAIGHT else min(2, problem.profile.num_units)
    return replace(problem, shape=shape, num_chunks=chunks)


class _Orders:
    """Seconds of plans by schedules; what several planners come to is looked at once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._known: dict[object, tuple[float, bool]] = {}

    def outcome(self, plan: Plan, schedule: str) -> tuple[float, bool]:
        """Seconds of an iteration, and whether it fits into memory."""
        key = plan.stages, schedule
        if key not in self._known:
            ordered = msgspec.structs.replace(plan, schedule=schedule)
            found = evaluate(ordered, self._problem.profile, self._problem.cluster, within_memory=False)
            self._known[key] = found.timeline.iteration_s, fits(found)
        return self._known[key]


def fits(found: Evaluation) -> bool:
    """Whether no device needs more memory than it has."""
    return not found.costs.over_bytes(found.proof.peak_bytes).any()
