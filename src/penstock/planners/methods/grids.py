"""Regular grids: pipeline depth times data parallelism, as most engines lay out devices.

The stages are cut evenly by time. Either the replicas of a stage are neighbours in the cluster's order, so that
gradients stay within a host, or the stages of a replica are, so that micro-batches stay within a host. With several
stages per device they lie in a loop or a V. A grid uses every device.

Cost: O(divisors of the number of devices) cuts.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.plan import Plan, Shape
from penstock.planners.costs import BACKWARD, FORWARD, GroupCosts
from penstock.planners.methods.balanced import balanced_cuts
from penstock.planners.problem import Problem

CHUNKS = (2, 4)
"""Numbers of stages per device to try beside one."""


def regular_grids(problem: Problem, *, virtual_stages: bool = True) -> Iterator[Plan]:
    """Yield all regular grids of the problem's devices with more than one replica and at most one stage per layer."""
    group_costs = GroupCosts(problem)
    num = problem.pipeline_depth or problem.cluster.num_devices
    layouts = [(Shape.STRAIGHT, 1)]
    if virtual_stages:
        layouts += [(shape, chunks) for chunks in CHUNKS for shape in (Shape.LOOP, Shape.V)]
    for num_stages in (count for count in range(1, num) if num % count == 0):
        for shape, chunks in layouts:
            if num_stages * chunks > problem.profile.num_units or (num_stages == 1 and chunks > 1):
                continue
            order = shape.stage_devices(num_stages, chunks)
            for groups in _groups(num, num_stages):
                plan = _grid(problem, group_costs, groups, order)
                if plan is not None:
                    yield plan


def _groups(num_devices: int, num_stages: int) -> list[list[list[int]]]:
    """The groups of the stages: of neighbouring devices, and of devices at equal distances."""
    devices = np.arange(num_devices)
    together, apart = devices.reshape(num_stages, -1), devices.reshape(-1, num_stages).T
    layouts = [together] if num_stages == 1 else [together, apart]
    return [layout.tolist() for layout in layouts]


def _grid(
    problem: Problem, group_costs: GroupCosts, groups: Sequence[Sequence[int]], order: Sequence[int]
) -> Plan | None:
    if any(group_costs.shares(group) is None for group in groups):
        return None  # a device too slow to take any rows
    sums = [group_costs.sums(group, FORWARD + BACKWARD) for group in groups]
    slowest = [rows[int(np.argmax(rows[:, -1]))] for rows in sums]
    group_devices = [group_costs.plan_group(group) for group in groups]
    cuts = balanced_cuts([slowest[group] for group in order])
    return problem.plan("grid", cuts, [group_devices[group] for group in order])
