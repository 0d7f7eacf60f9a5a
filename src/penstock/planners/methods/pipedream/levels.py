"""PipeDream's dynamic program on a row of slots, and its levels: all devices in a row, or devices in hosts, then hosts.

A slot is a device, or on the upper level a whole host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.planners.costs import BACKWARD, FORWARD, GroupCosts, Price

EVERY_COUNT = 64
"""The search tries every number of replicas up to this many slots; beyond, 1 to 4 and then steps of about a third."""


class Stage(NamedTuple):
    """Layers `start` up to `stop` on a group of devices."""

    start: int
    stop: int
    group: tuple[int, ...]


class Run(NamedTuple):
    """Layers `start` up to `stop` on the slots `first` up to `last`, exclusive."""

    start: int
    stop: int
    first: int
    last: int


StageSeconds = Callable[[int, int], Floats | None]
"""(first slot, number of slots) -> seconds [start, stop] of every range of layers; None if they cannot form a group."""


@dataclass(frozen=True, eq=False)
class Level:
    """A row of slots, with the costs of stages on consecutive slots and of channels between such groups."""

    group_costs: GroupCosts
    slots: tuple[int, ...]
    """The device that represents each slot in channels."""
    stage_s: StageSeconds
    is_shrinking: bool
    """Whether a range of layers never takes longer than a range that contains it."""
    portion: float = 1.0
    """The part of every micro-batch that this level processes."""
    num_replicas: int | None = None
    """The only number of replicas to try; None for all of `replica_counts`."""

    @cached_property
    def counts(self) -> list[int]:
        """The numbers of replicas to try."""
        return replica_counts(len(self.slots)) if self.num_replicas is None else [self.num_replicas]

    @cached_property
    def channel_s(self) -> dict[tuple[int, int], Floats]:
        """For each group (first slot, count): seconds [count of the group before, cut] of both directions."""
        groups = [(first, count) for first in range(len(self.slots)) for count in self.counts]
        number = {group: index for index, group in enumerate(groups)}
        pairs = [
            (number[first - earlier, earlier], number[first, count])
            for first, count in groups
            if first > 0 and first + count <= len(self.slots)
            for earlier in self.counts
            if earlier <= first
        ]
        if not pairs:
            return {}
        left, right = np.array(pairs, dtype=np.int64).T
        prices = self.group_costs.channels([self.slots[a : a + b] for a, b in groups], left, right)
        latency, per_byte = prices[:, 0] + prices[:, 2], prices[:, 1] + prices[:, 3]
        size = self.group_costs.cut_bytes * self.portion
        last = np.flatnonzero(np.diff(right, append=-1)) + 1
        bounds = np.concatenate([[0], last])
        return {
            groups[right[begin]]: latency[begin:end, None] + per_byte[begin:end, None] * size
            for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        }


class Solution(NamedTuple):
    """Tables over starts and ends for each (slots used, slots of the last stage)."""

    best: dict[tuple[int, int], Floats]
    """The least bottleneck."""
    cuts: dict[tuple[int, int], Ints]
    """The cut in front of the last stage."""
    earlier: dict[tuple[int, int], Ints]
    """The slots of the stage before it."""


def replica_counts(num_slots: int) -> list[int]:
    """The numbers of replicas to try on `num_slots` slots.

    >>> replica_counts(5), replica_counts(100)
    ([1, 2, 3, 4, 5], [1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 86, 100])
    """
    if num_slots <= EVERY_COUNT:
        return list(range(1, num_slots + 1))
    counts = [1]
    while counts[-1] < num_slots:
        counts.append(min(-(-counts[-1] * 4 // 3), num_slots))
    return counts


def solve(level: Level, starts: Ints, *, choices: bool = True) -> Solution:
    """Run the dynamic program for the given starts and all ends; without `choices`, keep only the bottlenecks."""
    from penstock.planners.methods.pipedream.kernel import append_stage

    solution = Solution({}, {}, {})
    for used in range(1, len(level.slots) + 1):
        for count in level.counts:
            first = used - count
            if first < 0:
                break
            stage = level.stage_s(first, count)
            if stage is None:
                continue
            if first == 0:
                solution.best[used, count] = stage[starts]
                continue
            # Larger groups first: with the same bottleneck, fewer stages fill sooner.
            before = [earlier for earlier in reversed(level.counts) if (first, earlier) in solution.best]
            if not before:
                continue
            rows = [level.counts.index(earlier) for earlier in before]
            channel = level.channel_s[first, count][rows]
            joined = np.array([solution.best[first, earlier] for earlier in before])
            np.maximum(joined, channel[:, None, :], out=joined)
            best, cuts = append_stage(starts, joined.min(axis=0), stage, level.is_shrinking)
            solution.best[used, count] = best
            if choices:
                solution.cuts[used, count] = cuts
                solution.earlier[used, count] = np.array(before)[joined.argmin(axis=0)]
    return solution


def trace(solution: Solution, start: int, stop: int) -> list[Run]:
    """The best runs from the solution's only start to an end; ties go to fewer devices. Empty if there are none."""
    if not solution.best:
        return []
    used, count = min(solution.best, key=lambda key: (float(solution.best[key][0, stop]), key[0], -key[1]))
    runs = []
    while used > count:
        cut = int(solution.cuts[used, count][0, stop])
        runs.append(Run(cut, stop, used - count, used))
        used, count, stop = used - count, int(solution.earlier[used, count][0, cut]), cut
    runs.append(Run(start, stop, used - count, used))
    return runs[::-1]


def find_flat(group_costs: GroupCosts, num_replicas: int | None = None, *, in_order: bool = False) -> list[Stage]:
    """The best stages on all devices in a row; none if there are none with that number of replicas.

    Args:
        group_costs: Costs of groups.
        num_replicas: The number of replicas of every stage; None for any.
        in_order: Whether the row is that of the cluster, even if the devices of a host are not neighbours in it.
    """
    row = tuple(sorted(group_costs.devices)) if in_order else group_costs.devices
    level = Level(group_costs, row, _device_stages(group_costs, row, 1.0), True, num_replicas=num_replicas)
    runs = trace(solve(level, np.array([0])), 0, group_costs.problem.profile.num_units)
    return [Stage(run.start, run.stop, row[run.first : run.last]) for run in runs]


def find_levels(group_costs: GroupCosts, num_replicas: tuple[int, int] | None = None) -> list[Stage] | None:
    """The best stages on whole hosts, with the best pipelines inside them; None if the hosts differ.

    Args:
        group_costs: Costs of groups.
        num_replicas: How many hosts every stage takes, and how many devices of each; None for any.
    """
    hosts = group_costs.hosts
    if not _alike(group_costs):
        return None
    num_units = group_costs.problem.profile.num_units
    outside_count, inside_count = num_replicas or (None, None)
    inside: dict[int, Floats] = {}
    for count in replica_counts(len(hosts)) if outside_count is None else [outside_count]:
        solution = solve(_inside(group_costs, count, inside_count), np.arange(num_units + 1), choices=False)
        if not solution.best:
            return None
        inside[count] = np.min(list(solution.best.values()), axis=0)

    def stage_s(first: int, count: int) -> Floats:
        heads = [host[0] for host in hosts[first : first + count]]
        return inside[count] + _reduction_s(group_costs, group_costs.reduce_price(heads))

    level = Level(group_costs, tuple(host[0] for host in hosts), stage_s, False, num_replicas=outside_count)
    stages = []
    for outer in trace(solve(level, np.array([0])), 0, num_units):
        chosen = hosts[outer.first : outer.last]
        inner = solve(_inside(group_costs, len(chosen), inside_count), np.array([outer.start]))
        for run in trace(inner, outer.start, outer.stop):
            group = tuple(device for host in chosen for device in host[run.first : run.last])
            stages.append(Stage(run.start, run.stop, group))
    return stages


def _inside(group_costs: GroupCosts, num_hosts: int, num_replicas: int | None) -> Level:
    """The level inside a host that processes its part of every micro-batch; the first host represents all of them."""
    host, portion = group_costs.hosts[0], 1 / num_hosts
    return Level(group_costs, host, _device_stages(group_costs, host, portion), True, portion, num_replicas)


def _device_stages(group_costs: GroupCosts, row: tuple[int, ...], portion: float) -> StageSeconds:
    """Costs of stages on consecutive devices; groups with equal costs share one table."""
    tables: dict[tuple[bytes, Price], Floats] = {}

    def stage_s(first: int, count: int) -> Floats | None:
        group = row[first : first + count]
        if group_costs.shares(group) is None:
            return None
        sums = group_costs.sums(group, FORWARD + BACKWARD, portion=portion)
        price = group_costs.reduce_price(group)
        key = (sums.tobytes(), price)
        if key not in tables:
            if len(tables) >= len(row):
                tables.pop(next(iter(tables)))
            tables[key] = _ranges(sums) + _reduction_s(group_costs, price)
        return tables[key]

    return stage_s


def _ranges(sums: Floats) -> Floats:
    """Seconds [start, stop] of every range of layers; inf for empty ones."""
    longest = sums[0][None, :] - sums[0][:, None]
    for row in sums[1:]:
        np.maximum(longest, row[None, :] - row[:, None], out=longest)
    longest[np.tril_indices(len(longest))] = np.inf
    return np.asarray(longest)


def _reduction_s(group_costs: GroupCosts, price: Price) -> Floats:
    """Seconds [start, stop] of the all-reduce, divided by the number of micro-batches."""
    sums = group_costs.parameter_sums
    size = np.maximum(sums[None, :] - sums[:, None], 0.0)
    return np.asarray((price.latency_s + price.seconds_per_byte * size) / group_costs.problem.num_microbatches)


def _alike(group_costs: GroupCosts) -> bool:
    """Whether there are several hosts, each with several devices of the same kinds, speeds and links."""
    hosts = group_costs.hosts
    if len(hosts) < 2 or len({len(host) for host in hosts}) > 1 or len(hosts[0]) < 2:
        return False
    return all(_traits(group_costs, host) == _traits(group_costs, hosts[0]) for host in hosts)


def _traits(group_costs: GroupCosts, host: Sequence[int]) -> tuple[object, ...]:
    cluster = group_costs.problem.cluster
    inside = np.ix_(host, host)
    devices = [(cluster.devices[device].kind, cluster.devices[device].speed) for device in host]
    return devices, cluster.bandwidth[inside].tolist(), cluster.latency_s[inside].tolist()
