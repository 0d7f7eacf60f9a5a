"""What no plan can get round: the bytes that a model needs wherever it is, against the memory that there is.

Whoever trains a unit holds its parameters, their gradients and their optimizer state, all of it, also as one of several
replicas; parameters that units share count once. So a cluster with less memory than all units take together, or whose
largest device has less than one unit takes, fits no plan.
"""

import math
from dataclasses import dataclass

import msgspec

from penstock.cluster import Cluster, Device
from penstock.planners.problem import Problem
from penstock.units import show_bytes

NOTHING_ELSE_HELPS = "neither --recompute, nor fewer rows a micro-batch, nor another schedule can change that"


@dataclass(frozen=True)
class MemoryFloor:
    """Why no plan at all can fit."""

    lines: tuple[str, ...]
    least_devices: int | None
    """How many devices the cluster must have at least, with more of the last one; None if no number is enough."""


def memory_floor(problem: Problem) -> MemoryFloor | None:
    """What rules out every plan; None where nothing does, or where a device has no limit that is known."""
    profile, devices = problem.profile, problem.cluster.devices
    limits = [device.memory_bytes for device in devices if device.memory_bytes is not None]
    if len(limits) < len(devices):
        return None
    ratio = 1 + profile.gradient_ratio + profile.optimizer_ratio
    largest = max(profile.units, key=lambda unit: unit.parameter_bytes)
    if largest.parameter_bytes * ratio > max(limits):
        what = (
            f"no plan can fit: {largest.name} alone takes {show_bytes(largest.parameter_bytes * ratio)} for its "
            f"parameters, gradients and optimizer state, and no device has more than {show_bytes(max(limits))}"
        )
        return MemoryFloor((what, f"{NOTHING_ELSE_HELPS}: devices with more memory are needed"), None)
    twice = sum((len(tie.units) - 1) * tie.parameter_bytes for tie in profile.ties)
    needed = (sum(unit.parameter_bytes for unit in profile.units) - twice) * ratio
    if needed <= sum(limits):
        return None
    what = (
        f"no plan can fit: parameters, gradients and optimizer state take {show_bytes(needed)}, "
        f"and all devices together have {show_bytes(sum(limits))}"
    )
    if not limits[-1]:
        return MemoryFloor((what, NOTHING_ELSE_HELPS), None)
    missing = math.ceil((needed - sum(limits)) / limits[-1])
    more = f"{missing:,} more device{'s' if missing > 1 else ''} like {devices[-1].name}"
    total = len(devices) + missing
    return MemoryFloor((what, f"{NOTHING_ELSE_HELPS}: at least {more} must be there ({total:,} in all)"), total)


def more_devices(cluster: Cluster, count: int) -> Cluster:
    """The cluster with copies of its last device on the same host, so that it has `count` devices."""
    last, names = cluster.devices[-1], set(cluster.index)
    copies: list[Device] = []
    number = 0
    while cluster.num_devices + len(copies) < count:
        number += 1
        name = f"{last.name}+{number}"
        if name not in names:
            copies.append(msgspec.structs.replace(last, name=name))
    return msgspec.structs.replace(cluster, devices=(*cluster.devices, *copies))
