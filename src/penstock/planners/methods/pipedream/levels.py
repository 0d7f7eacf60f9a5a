"""PipeDream's dynamic program on a row of slots, and its levels: devices in a row, or devices in hosts, then hosts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.planners.costs import BACKWARD, FORWARD, Price, Replicas

EVERY_COUNT = 64
"""Up to so many slots every number of replicas is tried; beyond, 1 to 4 and then steps of about a third."""


class Stage(NamedTuple):
    """Units `start` up to `stop` on a group of devices."""

    start: int
    stop: int
    group: tuple[int, ...]


class Run(NamedTuple):
    """Units `start` up to `stop` on the slots from `first` up to `last`, not included."""

    start: int
    stop: int
    first: int
    last: int


StageSeconds = Callable[[int, int], Floats | None]
"""(first slot, how many) -> seconds of every range [start, stop] of units; None where those may not form a group."""


@dataclass(frozen=True, eq=False)
class Level:
    """A row of slots: what a stage costs on some of them in a row, and what a channel costs between such groups."""

    replicas: Replicas
    slots: tuple[int, ...]
    """The device that stands for each slot in channels."""
    stage_s: StageSeconds
    is_shrinking: bool
    """Whether a range of units never takes longer than one that it lies in."""
    portion: float = 1.0
    """The part of every micro-batch that goes through this level."""
    replication: bool = True

    @cached_property
    def counts(self) -> list[int]:
        """The numbers of replicas to try."""
        return replica_counts(len(self.slots)) if self.replication else [1]

    @cached_property
    def channel_s(self) -> dict[tuple[int, int], Floats]:
        """For groups of `count` slots from `first` on: seconds over (count of the group before, cut), both ways."""
        groups = [(first, count) for first in range(len(self.slots)) for count in self.counts]
        number = {group: place for place, group in enumerate(groups)}
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
        prices = self.replicas.channels([self.slots[a : a + b] for a, b in groups], left, right)
        latency, per_byte = prices[:, 0] + prices[:, 2], prices[:, 1] + prices[:, 3]
        size = self.replicas.cut_bytes * self.portion
        last = np.flatnonzero(np.diff(right, append=-1)) + 1
        bounds = np.concatenate([[0], last])
        return {
            groups[right[begin]]: latency[begin:end, None] + per_byte[begin:end, None] * size
            for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        }


class Solution(NamedTuple):
    """For each (slots used, count of the last stage), over starts and ends; and how it comes about."""

    best: dict[tuple[int, int], Floats]
    cuts: dict[tuple[int, int], Ints]
    earlier: dict[tuple[int, int], Ints]


def replica_counts(num_slots: int) -> list[int]:
    """The numbers of replicas to try on so many slots.

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
    """The program for all ends, and for these starts; without `choices` only its values are kept."""
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
            # Larger groups first: at the same bottleneck fewer stages fill sooner.
            before = [earlier for earlier in reversed(level.counts) if (first, earlier) in solution.best]
            places = [level.counts.index(earlier) for earlier in before]
            channel = level.channel_s[first, count][places]
            joined = np.array([solution.best[first, earlier] for earlier in before])
            np.maximum(joined, channel[:, None, :], out=joined)
            best, cuts = append_stage(starts, joined.min(axis=0), stage, level.is_shrinking)
            solution.best[used, count] = best
            if choices:
                solution.cuts[used, count] = cuts
                solution.earlier[used, count] = np.array(before)[joined.argmin(axis=0)]
    return solution


def trace(solution: Solution, start: int, stop: int) -> list[Run]:
    """The best way from one start (the solution's only one) to an end; of equal ones, one with few devices."""
    used, count = min(solution.best, key=lambda key: (float(solution.best[key][0, stop]), key[0], -key[1]))
    runs = []
    while used > count:
        cut = int(solution.cuts[used, count][0, stop])
        runs.append(Run(cut, stop, used - count, used))
        used, count, stop = used - count, int(solution.earlier[used, count][0, cut]), cut
    runs.append(Run(start, stop, used - count, used))
    return runs[::-1]


def find_flat(replicas: Replicas, *, replication: bool) -> list[Stage]:
    """The best stages on the devices in a row."""
    level = Level(replicas, replicas.row, _device_stages(replicas, replicas.row, 1.0), True, replication=replication)
    runs = trace(solve(level, np.array([0])), 0, replicas.problem.profile.num_units)
    return [Stage(run.start, run.stop, replicas.row[run.first : run.last]) for run in runs]


def find_levels(replicas: Replicas, *, replication: bool) -> list[Stage] | None:
    """The best stages on whole hosts, with the best pipelines inside them; None if the hosts are not alike."""
    hosts = replicas.hosts
    if not _alike(replicas):
        return None
    num_units = replicas.problem.profile.num_units
    inside: dict[int, Floats] = {}
    for count in replica_counts(len(hosts)) if replication else [1]:
        solution = solve(_inside(replicas, count, replication), np.arange(num_units + 1), choices=False)
        inside[count] = np.min(list(solution.best.values()), axis=0)

    def stage_s(first: int, count: int) -> Floats:
        heads = [host[0] for host in hosts[first : first + count]]
        return inside[count] + _reduction_s(replicas, replicas.reduce_price(heads))

    level = Level(replicas, tuple(host[0] for host in hosts), stage_s, False, replication=replication)
    stages = []
    for outer in trace(solve(level, np.array([0])), 0, num_units):
        chosen = hosts[outer.first : outer.last]
        inner = solve(_inside(replicas, len(chosen), replication), np.array([outer.start]))
        for run in trace(inner, outer.start, outer.stop):
            group = tuple(place for host in chosen for place in host[run.first : run.last])
            stages.append(Stage(run.start, run.stop, group))
    return stages


def _inside(replicas: Replicas, num_hosts: int, replication: bool) -> Level:
    """The level inside a host that has its part of every micro-batch; hosts are alike, so the first stands for all."""
    host, portion = replicas.hosts[0], 1 / num_hosts
    return Level(replicas, host, _device_stages(replicas, host, portion), True, portion, replication)


def _device_stages(replicas: Replicas, row: tuple[int, ...], portion: float) -> StageSeconds:
    """Stages on devices in a row; groups that cost the same share one table."""
    tables: dict[tuple[bytes, Price], Floats] = {}

    def stage_s(first: int, count: int) -> Floats | None:
        group = row[first : first + count]
        if replicas.shares(group) is None:
            return None
        sums = replicas.sums(group, FORWARD + BACKWARD, portion=portion)
        price = replicas.reduce_price(group)
        key = (sums.tobytes(), price)
        if key not in tables:
            if len(tables) >= len(row):
                tables.pop(next(iter(tables)))
            tables[key] = _ranges(sums) + _reduction_s(replicas, price)
        return tables[key]

    return stage_s


def _ranges(sums: Floats) -> Floats:
    """The seconds of every range of units; inf for those that end before they begin, or are empty."""
    longest = sums[0][None, :] - sums[0][:, None]
    for row in sums[1:]:
        np.maximum(longest, row[None, :] - row[:, None], out=longest)
    longest[np.tril_indices(len(longest))] = np.inf
    return np.asarray(longest)


def _reduction_s(replicas: Replicas, price: Price) -> Floats:
    """For every range of units, its part of the all-reduce in the time of one micro-batch."""
    sums = replicas.parameter_sums
    size = np.maximum(sums[None, :] - sums[:, None], 0.0)
    return np.asarray((price.latency_s + price.seconds_per_byte * size) / replicas.problem.num_microbatches)


def _alike(replicas: Replicas) -> bool:
    """Whether there are several hosts of several devices with the same kinds, speeds and links in each."""
    hosts = replicas.hosts
    if len(hosts) < 2 or len({len(host) for host in hosts}) > 1 or len(hosts[0]) < 2:
        return False
    return all(_traits(replicas, host) == _traits(replicas, hosts[0]) for host in hosts)


def _traits(replicas: Replicas, host: Sequence[int]) -> tuple[object, ...]:
    cluster = replicas.problem.cluster
    inside = np.ix_(host, host)
    devices = [(cluster.devices[place].kind, cluster.devices[place].speed) for place in host]
    return devices, cluster.bandwidth[inside].tolist(), cluster.latency_s[inside].tolist()
