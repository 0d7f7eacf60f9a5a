"""The state that changes its place between two plans: which bytes go from which device to which."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.profile import Profile

NEGLIGIBLE = 1e-9


class Move(NamedTuple):
    """State of one layer that a device lacks and another one sends it."""

    layer: int
    source: str
    target: str
    num_bytes: float
    from_copy: bool = False
    """Whether all devices that held the state are lost, so that a copy in another device's memory sends it."""


class Holding(NamedTuple):
    """What a device holds of a layer: parameters, and a part of the optimizer's state.

    The state is the interval from `begin` to `end` of the layer's: all of it for a replica that trains the layer, a
    share with a sharded optimizer, and nothing for a device that runs the forward only.
    """

    parameter_bytes: float
    state_bytes: float
    """Of the whole layer."""
    begin: float
    end: float


NOTHING = Holding(0.0, 0.0, 0.0, 0.0)


def find_moves(
    old: Plan, new: Plan, profile: Profile, cluster: Cluster, lost: Collection[str] = ()
) -> tuple[Move, ...]:
    """List the parameters and optimizer states that a device needs under the new plan and does not hold under the old.

    The sender is the one with the fastest link of those that hold the state.

    Args:
        old: The plan that ran.
        new: The plan that follows.
        profile: The profile of both.
        cluster: A cluster with all devices of both.
        lost: Devices of the old plan that are gone. What only they held comes from a copy on another host, if there is
            another host.
    """
    before, after = holdings(old, profile), holdings(new, profile)
    moves: list[Move] = []
    for layer, (held, needed) in enumerate(zip(before, after, strict=True)):
        there = {name: item for name, item in held.items() if name not in lost}
        for target, need in needed.items():
            own = there.get(target, NOTHING)
            sources = sorted(
                (name for name in there if name != target), key=lambda name: _distance(cluster, name, target)
            )
            copies = _copy_holders(cluster, lost, target) if lost else []
            nearest_copy = min(copies, key=lambda name: _distance(cluster, name, target), default=None)
            if need.parameter_bytes > own.parameter_bytes:
                source = sources[0] if sources else nearest_copy
                if source is not None:
                    moves.append(Move(layer, source, target, need.parameter_bytes, from_copy=not sources))
            missing = _without([(need.begin, need.end)], own)
            for name in sources:
                rest = _without(missing, there[name])
                if (found := need.state_bytes * (_length(missing) - _length(rest))) > 0:
                    moves.append(Move(layer, name, target, found))
                missing = rest
            if (found := need.state_bytes * _length(missing)) > 0 and nearest_copy is not None:
                moves.append(Move(layer, nearest_copy, target, found, from_copy=True))
    return tuple(moves)


def _without(parts: list[tuple[float, float]], held: Holding) -> list[tuple[float, float]]:
    """Some intervals without what a device holds.

    >>> _without([(0.0, 1.0)], Holding(1.0, 1.0, 0.25, 0.5))
    [(0.0, 0.25), (0.5, 1.0)]
    """
    cut = [(begin, min(end, held.begin)) for begin, end in parts]
    cut += [(max(begin, held.end), end) for begin, end in parts]
    if held.end <= held.begin:
        return parts
    return [(begin, end) for begin, end in cut if end - begin > NEGLIGIBLE]


def _length(parts: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in parts)


def holdings(plan: Plan, profile: Profile) -> list[dict[str, Holding]]:
    """By layer: what each device holds of it."""
    rows: list[dict[str, Holding]] = []
    for stage in plan.stages:
        trainers = [replica.device for replica in stage.backward]
        count = len(trainers)
        parts = {
            name: (index / count, (index + 1) / count) if stage.sharded_optimizer else (0.0, 1.0)
            for index, name in enumerate(trainers)
        }
        devices = dict.fromkeys((*trainers, *(replica.device for replica in stage.forward)))
        for unit in profile.units[stage.start : stage.stop]:
            state = unit.trained_bytes * profile.optimizer_ratio
            rows.append({name: Holding(unit.parameter_bytes, state, *parts.get(name, (0.0, 0.0))) for name in devices})
    return rows


def move_seconds(moves: Sequence[Move], cluster: Cluster) -> float:
    """Seconds until all devices have what they lack, if each sends and receives one message at a time."""
    sums: dict[tuple[str, str], float] = {}
    for move in moves:
        sums[move.source, move.target] = sums.get((move.source, move.target), 0.0) + move.num_bytes
    spent = np.zeros((2, cluster.num_devices))
    for (source, target), num_bytes in sums.items():
        if source == target:  # a copy in its own memory
            continue
        ends = cluster.index[source], cluster.index[target]
        seconds = float(cluster.latency_s[ends] + num_bytes / cluster.bandwidth[ends])
        spent[0, ends[0]] += seconds
        spent[1, ends[1]] += seconds
    return float(spent.max(initial=0.0))


def moved_bytes(moves: Sequence[Move]) -> Mapping[str, float]:
    """By device: the bytes that it receives."""
    received: dict[str, float] = {}
    for move in moves:
        received[move.target] = received.get(move.target, 0.0) + move.num_bytes
    return received


def _copy_holders(cluster: Cluster, lost: Collection[str], target: str) -> list[str]:
    """The devices that may hold a copy of what was lost: on another host, if there is one."""
    there = [device for device in cluster.devices if device.name not in lost]
    hosts = {device.host for device in cluster.devices if device.name in lost}
    elsewhere = [device.name for device in there if device.host not in hosts]
    return elsewhere or [device.name for device in there if device.name != target] or [target]


def _distance(cluster: Cluster, source: str, target: str) -> tuple[float, int]:
    """A sort key: the device with the fastest link first."""
    return -float(cluster.bandwidth[cluster.index[source], cluster.index[target]]), cluster.index[source]
