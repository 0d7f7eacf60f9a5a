"""Data parallelism: one stage on all devices, rows in proportion to their speed.

Cost: O(devices).
"""

import math

from penstock.errors import InputError
from penstock.plan import SHARE_TOLERANCE, Plan, Replica
from penstock.planners.problem import Problem


def data_parallel(problem: Problem) -> Plan:
    """Every device has the whole model; each micro-batch's rows are split by speed."""
    devices = problem.cluster.devices[: problem.pipeline_depth]
    seconds = [float(problem.clock.work(place)[-1]) for place in range(len(devices))]
    speeds = [min(seconds) / value for value in seconds] if all(seconds) else [1.0 for _ in devices]
    total = math.fsum(speeds)
    for device, speed in zip(devices, speeds, strict=True):
        if not speed / total > SHARE_TOLERANCE:
            raise InputError(f"device {device.name!r} is too slow to get any rows", hint="Leave it out.")
    group = tuple(Replica(device.name, speed / total) for device, speed in zip(devices, speeds, strict=True))
    return problem.plan("data_parallel", [0, problem.profile.num_units], [group])
