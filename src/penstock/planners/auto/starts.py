"""Where the planner auto begins: the plans of all other planners that keep to the freedoms, and some more.

Bi-Partition chooses by simulating under a schedule: all that it chooses from is here, so that auto, which judges each
with the best order, is never worse, whatever the schedule.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.plan import Plan, Replica, Shape
from penstock.plan.pricing import whole_rows
from penstock.planners.methods import balanced, data_parallel, regular_grids, uniform
from penstock.planners.methods.bipartition import two_set_plans
from penstock.planners.methods.dapple import dapple
from penstock.planners.methods.pipedream import pipedream
from penstock.planners.methods.spp import device_orders, partitions, spp
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace

DAPPLE_DEVICES = 64
PIPEDREAM_DEVICES = 256
"""Above so many devices these searches take too long to be a start."""
CHUNKS = (2, 4)
"""Stages a device in the loops and Vs that are tried."""
PARTITIONS = 16
"""How many of the best partitions along an order of the devices are tried."""


class Starts(NamedTuple):
    """Plans to begin with."""

    others: list[Plan]
    """What the other planners give, under any schedule."""
    more: list[Plan]
    """What else may be worth a try."""


def starting_plans(problem: Problem, search_space: SearchSpace) -> Starts:
    """The plans to begin with that keep to the freedoms, each once; at least one."""
    found: dict[object, Plan] = {}
    counts = []
    for plans in (_others(problem, search_space), _more(problem, search_space)):
        for plan in _allowed(plans, problem, search_space):
            found.setdefault(plan.stages, plan)
        counts.append(len(found))
    unique = list(found.values())
    return Starts(unique[: counts[0]], unique[counts[0] :])


def closing_plans(problem: Problem, search_space: SearchSpace) -> list[Plan]:
    """What is judged beside all that was found: SPP with one device a stage, whose order the search begins from too."""
    return list(_allowed([spp(problem, replication=False)], problem, search_space))


def _allowed(plans: Iterable[Plan], problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    for made in plans:
        plan = made if search_space.part_rows else with_whole_rows(made)
        if search_space.allow(plan, problem.cluster, recompute=problem.recompute):
            yield as_auto(plan, search_space)


def as_auto(plan: Plan, search_space: SearchSpace) -> Plan:
    """The same stages, as auto returns them."""
    return msgspec.structs.replace(plan, planner="auto", schedule=search_space.plan_schedule, split_backward=False)


def with_whole_rows(plan: Plan) -> Plan:
    """The same plan, with shares that are whole rows wherever there are enough of them."""
    stages = []
    for stage in plan.stages:
        rows = whole_rows([replica.share for replica in stage.forward], plan.micro_batch_size)
        if rows is not None:
            forward, backward = (
                tuple(
                    Replica(replica.device, count / plan.micro_batch_size)
                    for replica, count in zip(group, rows, strict=True)
                )
                for group in (stage.forward, stage.backward)
            )
            stage = msgspec.structs.replace(stage, forward=forward, backward=backward)  # noqa: PLW2901
        stages.append(stage)
    return msgspec.structs.replace(plan, stages=tuple(stages))


def recomputed(plan: Plan) -> Plan:
    """The same plan, with every stage's forward run again."""
    stages = tuple(msgspec.structs.replace(stage, recompute=True) for stage in plan.stages)
    return msgspec.structs.replace(plan, stages=stages)


def _others(problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    num = problem.pipeline_depth or problem.cluster.num_devices
    yield balanced(problem)
    for laid in _layouts(problem, search_space, CHUNKS[:1]):
        yield uniform(laid)
        yield balanced(laid)
        if search_space.two_cuts:
            yield from two_set_plans(laid)
    yield pipedream(problem, replication=False)
    if not search_space.replication:
        return
    with suppress(PenstockError):  # a device too slow to take any rows
        yield data_parallel(problem)
    yield spp(problem)
    if num <= PIPEDREAM_DEVICES:
        yield pipedream(problem)
    if num <= DAPPLE_DEVICES:
        yield dapple(problem)


def _more(problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    num = problem.pipeline_depth or problem.cluster.num_devices
    for laid in _layouts(problem, search_space, CHUNKS[1:]):
        yield balanced(laid)
    as_it_is = list(range(num))
    for order in device_orders(problem) if search_space.device_order else [as_it_is]:
        yield from _partitioned(problem, search_space, order)
        if order != as_it_is:
            yield from _in_another_order(problem, search_space, order)
    if search_space.replication:
        yield from regular_grids(problem, virtual_stages=search_space.virtual_stages)


def _layouts(problem: Problem, search_space: SearchSpace, chunks: Sequence[int]) -> Iterator[Problem]:
    """The problem as it is, and with loops and Vs on all devices where they may be."""
    yield problem
    if not search_space.virtual_stages or problem.shape is not Shape.STRAIGHT or problem.pipeline_depth == 1:
        return
    for count in chunks:
        for shape in (Shape.V, Shape.LOOP):
            with suppress(PenstockError):  # more stages than units
                yield replace(problem, shape=shape, num_chunks=count)


def _in_another_order(problem: Problem, search_space: SearchSpace, order: list[int]) -> Iterator[Plan]:
    """One device a stage, with the devices in another order."""
    cluster = problem.cluster
    rest = [place for place in range(cluster.num_devices) if place not in set(order)]
    devices = tuple(cluster.devices[place] for place in [*order, *rest])
    turned = replace(problem, cluster=msgspec.structs.replace(cluster, devices=devices))
    origin = balanced(problem).cluster
    plans = [balanced(laid) for laid in _layouts(turned, search_space, CHUNKS[:1])]
    if search_space.two_cuts:
        plans += two_set_plans(turned)
    for plan in plans:
        yield msgspec.structs.replace(plan, cluster=origin)


def _partitioned(problem: Problem, search_space: SearchSpace, order: list[int]) -> Iterator[Plan]:
    """The partitions with the least bottleneck along an order of the devices, with and without replicas."""
    for replication in (True, False) if search_space.replication else (False,):
        found = partitions(problem, order, replication=replication)
        found.sort(key=lambda item: (item.bottleneck_s, len(item.groups)))
        for item in found[:PARTITIONS]:
            yield problem.plan("spp", item.cuts, item.groups)
