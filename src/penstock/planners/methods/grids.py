"""Regular grids: so many stages times so many equal replicas, as most engines lay them out.

The stages are cut evenly by time. A stage's replicas are neighbours in the cluster's order (so that they share a host,
and stages are apart), or the stages of one replica are (so that micro-batches stay within a host, and gradients do
not). With several stages a device they lie in a loop or a V. Only whole grids: every device has its place.

Cost: O(divisors of the number of devices) cuts.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from penstock.plan import Plan, Shape
from penstock.planners.costs import BACKWARD, FORWARD, Replicas
from penstock.planners.methods.balanced import balanced_cuts
from penstock.planners.problem import Problem

CHUNKS = (2, 4)
"""Numbers of stages a device, besides one."""


def regular_grids(problem: Problem, *, virtual_stages: bool = True) -> Iterator[Plan]:
    """All regular grids of the problem's devices that have more than one replica, and fewer stages than units."""
    replicas = Replicas(problem)
    num = problem.pipeline_depth or problem.cluster.num_devices
    layouts = [(Shape.STRAIGHT, 1)]
    if virtual_stages:
        layouts += [(shape, chunks) for chunks in CHUNKS for shape in (Shape.LOOP, Shape.V)]
    for num_stages in (count for count in range(1, num) if num % count == 0):
        for shape, chunks in layouts:
            if num_stages * chunks > problem.profile.num_units or (num_stages == 1 and chunks > 1):
                continue
            lanes = shape.lanes(num_stages, chunks)
            for groups in _groups(num, num_stages):
                plan = _grid(problem, replicas, groups, lanes)
                if plan is not None:
                    yield plan


def _groups(num_devices: int, num_stages: int) -> list[list[list[int]]]:
    """The groups of the stages: neighbours together, and neighbours apart."""
    places = np.arange(num_devices)
    together, apart = places.reshape(num_stages, -1), places.reshape(-1, num_stages).T
    layouts = [together] if num_stages == 1 else [together, apart]
    return [layout.tolist() for layout in layouts]


def _grid(problem: Problem, replicas: Replicas, groups: Sequence[Sequence[int]], lanes: Sequence[int]) -> Plan | None:
    if any(replicas.shares(group) is None for group in groups):
        return None  # a device too slow to take any rows
    sums = [replicas.sums(group, FORWARD + BACKWARD) for group in groups]
    slowest = [rows[int(np.argmax(rows[:, -1]))] for rows in sums]
    group_devices = [replicas.replicas(group) for group in groups]
    cuts = balanced_cuts([slowest[lane] for lane in lanes])
    return problem.plan("grid", cuts, [group_devices[lane] for lane in lanes])
