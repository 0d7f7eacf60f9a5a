"""All maps of a small problem.

A map gives every layer a forward and a backward device; a device has at most one run of layers in each direction. The
stages of its plan are the runs between all cuts. Stages with a remote backward transfer their saved tensors or, if
their input is smaller, may recompute instead.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product

import msgspec
import numpy as np

from penstock.arrays import Bools, Ints
from penstock.errors import InputError
from penstock.plan import Plan, Stage, on
from penstock.planners.problem import Problem
from penstock.profile import fit

MAX_MAPS = 100_000
"""Limit on the number of maps, not counting choices of recomputation."""


@dataclass(frozen=True, eq=False)
class Maps:
    """Arrays [map, unit]."""

    forward: Ints
    backward: Ints
    recompute: Bools
    """Whether the backward device recomputes the layer."""


def runs(num_units: int, num_devices: int) -> Iterator[list[int]]:
    """Every assignment of layers to devices in which a device has at most one run.

    >>> list(runs(2, 2))
    [[0, 0], [1, 1], [0, 1], [1, 0]]
    """
    for count in range(1, min(num_units, num_devices) + 1):
        for cuts in combinations(range(1, num_units), count - 1):
            bounds = (0, *cuts, num_units)
            for devices in permutations(range(num_devices), count):
                yield [device for k, device in enumerate(devices) for _ in range(bounds[k + 1] - bounds[k])]


def num_maps(problem: Problem, *, remote_backward: bool) -> int:
    """The number of maps, not counting choices of recomputation."""
    num_units, devices = problem.profile.num_units, problem.pipeline_depth or problem.cluster.num_devices
    most = min(num_units, devices)
    count = sum(math.comb(num_units - 1, k - 1) * math.perm(devices, k) for k in range(1, most + 1))
    return count ** (2 if remote_backward else 1)


def all_maps(problem: Problem, *, remote_backward: bool, recompute: bool) -> Maps:
    """All maps of a problem.

    Args:
        problem: The problem.
        remote_backward: Whether forward and backward of a layer may be on different devices.
        recompute: Whether stages with a remote backward may recompute.

    Raises:
        InputError: If there are more than `MAX_MAPS` maps.
    """
    num_units = problem.profile.num_units
    devices = problem.pipeline_depth or problem.cluster.num_devices
    if num_maps(problem, remote_backward=remote_backward) > MAX_MAPS:
        raise InputError(
            f"{num_units} layers on {devices} devices are too many for the exact planner",
            hint="Use at most about 6 layers on 3 devices.",
        )
    assignments = [tuple(assignment) for assignment in runs(num_units, devices)]
    sizes = fit(problem.profile, problem.profile.kinds[0]).at(problem.rows_per_microbatch)
    first = problem.profile.input_bytes * problem.rows_per_microbatch / problem.profile.micro_batch_size
    inputs, saved = [first, *sizes.cut_bytes[:-1]], sizes.saved_bytes.tolist()
    rows = []
    for ahead, back in (
        product(assignments, assignments) if remote_backward else zip(assignments, assignments, strict=True)
    ):
        choices = [
            (start, stop)
            for start, stop in stages_of(ahead, back)
            if recompute and ahead[start] != back[start] and inputs[start] < sum(saved[start:stop])
        ]
        for chosen in product((False, True), repeat=len(choices)):
            recomputed = [False] * num_units
            for (start, stop), is_recomputed in zip(choices, chosen, strict=True):
                recomputed[start:stop] = [is_recomputed] * (stop - start)
            rows.append((ahead, back, recomputed))
    columns = [np.array([row[index] for row in rows]) for index in range(3)]
    return Maps(*columns)


def stages_of(ahead: Sequence[int], back: Sequence[int]) -> list[tuple[int, int]]:
    """Start and stop of every run of layers with one forward and one backward device."""
    pairs = list(zip(ahead, back, strict=True))
    starts = [unit for unit in range(len(pairs)) if unit == 0 or pairs[unit] != pairs[unit - 1]]
    return list(zip(starts, [*starts[1:], len(pairs)], strict=True))


def plan_of_map(problem: Problem, maps: Maps, map_index: int) -> Plan:
    """The plan of one of many maps."""
    names = [device.name for device in problem.cluster.devices]
    ahead, back = maps.forward[map_index].tolist(), maps.backward[map_index].tolist()
    stages = tuple(
        Stage(
            start=start,
            stop=stop,
            forward=on(names[ahead[start]]),
            backward=on(names[back[start]]),
            recompute=bool(maps.recompute[map_index, start]),
        )
        for start, stop in stages_of(ahead, back)
    )
    whole = problem.plan("exact", [0, problem.profile.num_units], [on(names[0])])
    return msgspec.structs.replace(whole, stages=stages)
