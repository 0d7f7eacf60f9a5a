"""The memory floor: bytes that every plan needs, compared with the memory of the cluster.

Every replica of a layer holds all of its parameters, their gradients and their optimizer state; tied parameters count
once. So no plan fits if the cluster has less memory than all layers need together, or if no device has enough for the
largest layer.
"""

import math
from dataclasses import dataclass

import msgspec

from penstock.cluster import Cluster, Device
from penstock.planners.problem import Problem
from penstock.profile import Unit
from penstock.units import show_bytes

NOTHING_ELSE_HELPS = "--recompute, a smaller micro-batch size and another schedule do not change this"


@dataclass(frozen=True)
class MemoryFloor:
    """The reason why no plan fits.

    Attributes:
        lines: The reason in words.
        least_devices: The number of devices that the cluster needs at least, with more devices like its last one; None
            if no number is enough.
    """

    lines: tuple[str, ...]
    least_devices: int | None


def memory_floor(problem: Problem) -> MemoryFloor | None:
    """The reason why no plan fits; None if a plan may fit, or if the memory of a device is unknown."""
    profile, devices = problem.profile, problem.cluster.devices
    limits = [device.memory_bytes for device in devices if device.memory_bytes is not None]
    if len(limits) < len(devices):
        return None
    ratio = profile.gradient_ratio + profile.optimizer_ratio

    def needed_by(item: Unit) -> float:
        return item.parameter_bytes + item.trained_bytes * ratio

    largest = max(profile.units, key=needed_by)
    if needed_by(largest) > max(limits):
        what = (
            f"no plan can fit: layer {largest.name} alone needs {show_bytes(needed_by(largest))} for its "
            f"parameters, gradients and optimizer state, and no device has more than {show_bytes(max(limits))}"
        )
        return MemoryFloor((what, f"{NOTHING_ELSE_HELPS}: use devices with more memory"), None)
    twice = sum((len(tie.units) - 1) * tie.parameter_bytes * (1 + ratio * tie.is_trained) for tie in profile.ties)
    needed = sum(map(needed_by, profile.units)) - twice
    if needed <= sum(limits):
        return None
    what = (
        f"no plan can fit: parameters, gradients and optimizer state need {show_bytes(needed)}, "
        f"and all devices together have {show_bytes(sum(limits))}"
    )
    if not limits[-1]:
        return MemoryFloor((what, NOTHING_ELSE_HELPS), None)
    missing = math.ceil((needed - sum(limits)) / limits[-1])
    more = f"{missing:,} more device{'s' if missing > 1 else ''} like {devices[-1].name}"
    total = len(devices) + missing
    return MemoryFloor((what, f"{NOTHING_ELSE_HELPS}: add at least {more} ({total:,} in total)"), total)


def more_devices(cluster: Cluster, count: int) -> Cluster:
    """The cluster extended to `count` devices by copies of its last device on the same host."""
    last, names = cluster.devices[-1], set(cluster.index)
    copies: list[Device] = []
    number = 0
    while cluster.num_devices + len(copies) < count:
        number += 1
        name = f"{last.name}+{number}"
        if name not in names:
            copies.append(msgspec.structs.replace(last, name=name))
    return msgspec.structs.replace(cluster, devices=(*cluster.devices, *copies))
