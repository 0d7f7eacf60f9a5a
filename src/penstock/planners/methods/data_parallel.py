"""Data parallelism: one stage on all devices, with rows in proportion to their speed.

Cost: O(devices).
"""

import math

from penstock.errors import InputError
from penstock.plan import SHARE_TOLERANCE, Plan, Replica
from penstock.planners.problem import Problem


def data_parallel(problem: Problem) -> Plan:
    """Put the whole model on every device, and split each micro-batch's rows by speed.

    Raises:
        InputError: If a device is too slow to get any rows.
    """
    devices = problem.cluster.devices[: problem.pipeline_depth]
    seconds = [float(problem.clock.work(device)[-1]) for device in range(len(devices))]
    speeds = [min(seconds) / value for value in seconds] if all(seconds) else [1.0 for _ in devices]
    total = math.fsum(speeds)
    for device, speed in zip(devices, speeds, strict=True):
        if not speed / total > SHARE_TOLERANCE:
            raise InputError(
                f"device {device.name!r} is too slow to get any rows of a micro-batch",
                hint="Remove it from the cluster, or use another planner.",
            )
    group = tuple(Replica(device.name, speed / total) for device, speed in zip(devices, speeds, strict=True))
    return problem.plan("data_parallel", [0, problem.profile.num_units], [group])
