"""Starting plans of the planner auto: those of all other planners within the search space, and some more.

They include all candidates of Bi-Partition, which chooses by simulating under one schedule. Auto evaluates each with
its best order, so it is never worse than Bi-Partition under any schedule.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.plan import Plan, Shape
from penstock.planners.auto.folding import is_symmetric, memory_stages
from penstock.planners.methods import balanced, data_parallel, regular_grids, uniform
from penstock.planners.methods.bipartition import two_set_plans
from penstock.planners.methods.dapple import dapple
from penstock.planners.methods.pipedream import pipedream
from penstock.planners.methods.spp import device_orders, partitions, spp
from penstock.planners.problem import Problem
from penstock.planners.row_shares import with_equal_shares, with_whole_rows
from penstock.planners.search_space import SearchSpace

DAPPLE_DEVICES = 64
PIPEDREAM_DEVICES = 256
SPP_DEVICES = 1024
"""Above this many devices these planners take too long."""
UNEQUAL_DEVICES = 32
"""Above this many devices, stages with unequal numbers of replicas are tried for classes of devices only."""
CHUNKS = (2, 4)
"""Numbers of stages per device to try in loops and Vs."""
PARTITIONS = 16
"""Number of partitions to try for each order of the devices."""


class Starts(NamedTuple):
    """Plans from which the search starts."""

    others: list[Plan]
    """Plans of the other planners, under any schedule."""
    more: list[Plan]
    """Further candidates."""


def starting_plans(problem: Problem, search_space: SearchSpace, *, more: bool = True) -> Starts:
    """The starting plans within the search space, each once; at least one. Further candidates only with `more`."""
    plan_of_stages: dict[object, Plan] = {}
    counts = []
    for plans in (_others(problem, search_space), _more(problem, search_space) if more else ()):
        for plan in _allowed(plans, problem, search_space):
            plan_of_stages.setdefault(plan.stages, plan)
        counts.append(len(plan_of_stages))
    unique = list(plan_of_stages.values())
    return Starts(unique[: counts[0]], unique[counts[0] :])


def closing_plans(problem: Problem, search_space: SearchSpace) -> list[Plan]:
    """Plans to evaluate beside the search's results: SPP with one device per stage."""
    return list(_allowed([spp(problem, replication=False)], problem, search_space))


def _allowed(plans: Iterable[Plan], problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    for plan in plans:
        candidate = plan if search_space.unequal_shares else with_equal_shares(plan)
        candidate = candidate if search_space.part_rows else with_whole_rows(candidate)
        if search_space.allow(candidate, problem.cluster, recompute=problem.recompute):
            yield as_auto(candidate, search_space)


def as_auto(plan: Plan, search_space: SearchSpace) -> Plan:
    """The same stages, as auto returns them."""
    return msgspec.structs.replace(plan, planner="auto", schedule=search_space.plan_schedule, split_backward=False)


def recomputed(plan: Plan) -> Plan:
    """The same plan, with every stage recomputed."""
    stages = tuple(msgspec.structs.replace(stage, recompute=True) for stage in plan.stages)
    return msgspec.structs.replace(plan, stages=stages)


def sharded(plan: Plan) -> Plan:
    """The same plan, with a sharded optimizer for every stage that can have one."""
    stages = tuple(msgspec.structs.replace(stage, sharded_optimizer=stage.can_shard_optimizer) for stage in plan.stages)
    return msgspec.structs.replace(plan, stages=stages)


def _others(problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    num = problem.pipeline_depth or problem.cluster.num_devices
    yield balanced(problem)
    for layout in _layouts(problem, search_space, CHUNKS[:1]):
        yield uniform(layout)
        yield balanced(layout)
        if search_space.two_cuts:
            yield from two_set_plans(layout)
    yield pipedream(problem, replication=False)
    if not search_space.replication:
        return
    with suppress(PenstockError):  # a device too slow to take any rows
        yield data_parallel(problem)
    if num <= SPP_DEVICES:
        yield spp(problem)
    if num <= PIPEDREAM_DEVICES:
        yield pipedream(problem)
    if num <= DAPPLE_DEVICES:
        yield dapple(problem)


def _more(problem: Problem, search_space: SearchSpace) -> Iterator[Plan]:
    num = problem.pipeline_depth or problem.cluster.num_devices
    for layout in _layouts(problem, search_space, CHUNKS[1:]):
        yield balanced(layout)
    cluster_order = list(range(num))
    for order in device_orders(problem) if search_space.device_order else [cluster_order]:
        yield from _partitioned(problem, search_space, order)
        if order != cluster_order:
            yield from _in_another_order(problem, search_space, order)
    has_limits = problem.cluster.devices[0].memory_bytes is not None
    if has_limits and num <= UNEQUAL_DEVICES and is_symmetric(problem):
        yield from memory_stages(problem, search_space)
    if search_space.replication:
        yield from regular_grids(problem, virtual_stages=search_space.virtual_stages)


def _layouts(problem: Problem, search_space: SearchSpace, chunks: Sequence[int]) -> Iterator[Problem]:
    """Yield the problem, and if the search space allows it the problem with loops and Vs on all devices."""
    yield problem
    if not search_space.virtual_stages or problem.shape is not Shape.STRAIGHT or problem.pipeline_depth == 1:
        return
    for count in chunks:
        for shape in (Shape.V, Shape.LOOP):
            with suppress(PenstockError):  # more stages than layers
                yield replace(problem, shape=shape, num_chunks=count)


def _in_another_order(problem: Problem, search_space: SearchSpace, order: list[int]) -> Iterator[Plan]:
    """Yield plans with one device per stage, with the devices in another order."""
    cluster = problem.cluster
    rest = [device for device in range(cluster.num_devices) if device not in set(order)]
    devices = tuple(cluster.devices[device] for device in [*order, *rest])
    reordered = replace(problem, cluster=msgspec.structs.replace(cluster, devices=devices))
    origin = balanced(problem).cluster
    plans = [balanced(layout) for layout in _layouts(reordered, search_space, CHUNKS[:1])]
    if search_space.two_cuts:
        plans += two_set_plans(reordered)
    for plan in plans:
        yield msgspec.structs.replace(plan, cluster=origin)


def _partitioned(problem: Problem, search_space: SearchSpace, order: list[int]) -> Iterator[Plan]:
    """Yield the partitions with the least bottleneck along an order of the devices, with and without replicas."""
    for replication in (True, False) if search_space.replication else (False,):
        candidates = partitions(problem, order, replication=replication)
        candidates.sort(key=lambda item: (item.bottleneck_s, len(item.groups)))
        for item in candidates[:PARTITIONS]:
            yield problem.plan("spp", item.cuts, item.groups)
