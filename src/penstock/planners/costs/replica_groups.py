"""What groups of devices cost: shares of rows, seconds of ranges of units, all-reduces, channels between groups.

For planners that replicate stages. A group takes rows in proportion to its members' speeds, a range of units takes as
long as its slowest member, gradients go round a ring, and a channel between two groups is as fast as its busiest link
or shared interface. Parameters that units share are counted with every unit that holds them.

Numbers are kept below `HUGE`, so that sums and products stay finite whatever the speeds and bandwidths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.cluster import Cluster
from penstock.plan import SHARE_TOLERANCE, Group, Replica
from penstock.plan.pricing import Part, reduce_ring
from penstock.planners.problem import Problem
from penstock.profile import UnitCosts, fit

HUGE = 1e200
SEARCHED_RING = 6
"""Larger groups are priced in the ring host by host; it is the best one wherever hosts are alike inside."""

FORWARD: tuple[Part, ...] = ("forward_s",)
BACKWARD: tuple[Part, ...] = ("input_grad_s", "weight_grad_s")


class Price(NamedTuple):
    """Seconds that depend on bytes along a line."""

    latency_s: float
    seconds_per_byte: float

    def of(self, num_bytes: float) -> float:
        """The seconds of so many bytes."""
        return self.latency_s + self.seconds_per_byte * num_bytes


class Channel(NamedTuple):
    """Both directions between two groups."""

    forward: Price
    backward: Price

    def both_ways_s(self, num_bytes: float) -> float:
        """Seconds of an activation of so many bytes and of its gradient."""
        return self.forward.of(num_bytes) + self.backward.of(num_bytes)


@dataclass(frozen=True, eq=False)
class Replicas:
    """The prices of groups for one problem. A group is a tuple of places in the cluster's list of devices."""

    problem: Problem

    @cached_property
    def row(self) -> tuple[int, ...]:
        """The devices to plan for: the first `num_stages`, host by host in the order in which hosts come up."""
        chosen = range(self.problem.cluster.num_devices)[: self.problem.pipeline_depth]
        host = self.problem.cluster.host_index
        seen = {int(host[place]): place for place in reversed(chosen)}
        return tuple(sorted(chosen, key=lambda place: (seen[int(host[place])], place)))

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The devices of the row, host by host."""
        groups: dict[int, list[int]] = {}
        for place in self.row:
            groups.setdefault(int(self.problem.cluster.host_index[place]), []).append(place)
        return tuple(tuple(group) for group in groups.values())

    @cached_property
    def cut_bytes(self) -> Floats:
        """Over places in the chain, 0 to the number of units: the bytes that cross there; 0 at both ends."""
        sizes = self._sizes.cut_bytes
        return np.concatenate([[0.0], sizes[:-1], [0.0]])

    @cached_property
    def parameter_sums(self) -> Floats:
        """Running sums of the units' parameter bytes."""
        return np.concatenate([[0.0], np.cumsum(self._sizes.parameter_bytes)])

    @cached_property
    def whole_s(self) -> Floats:
        """Over the cluster's devices of the row: seconds of the whole model; 0 for the others."""
        seconds = np.zeros(self.problem.cluster.num_devices)
        for place in self.row:
            seconds[place] = self.problem.clock.work(place)[-1]
        return seconds

    @cached_property
    def fastest(self) -> int:
        """The device that is fastest with the whole model; the first of equal ones."""
        return min(self.row, key=lambda place: float(self.whole_s[place]))

    def shares(self, group: Sequence[int]) -> tuple[float, ...] | None:
        """The rows' shares of a group's members, by speed; None if somebody would be too slow to get any."""
        if len(group) == 1:
            return (1.0,)
        seconds = [float(self.whole_s[place]) for place in group]
        speeds = [min(seconds) / value for value in seconds] if all(seconds) else [1.0 for _ in group]
        total = math.fsum(speeds)
        shares = tuple(speed / total for speed in speeds)
        return shares if all(share > SHARE_TOLERANCE for share in shares) else None

    def replicas(self, group: Sequence[int]) -> Group:
        """The group as a plan names it."""
        shares = self.shares(group)
        assert shares is not None, "a group in which somebody gets no rows"
        devices = self.problem.cluster.devices
        return tuple(Replica(devices[place].name, share) for place, share in zip(group, shares, strict=True))

    def sums(self, group: Sequence[int], parts: Sequence[Part], *, portion: float = 1.0) -> Floats:
        """Running sums of the units' seconds, one row for each member unlike the others before it.

        Units a up to b take the maximum of sums[:, b] - sums[:, a]. With a `portion`, the group has only that part
        of every micro-batch. The group must have shares.
        """
        shares = self.shares(group)
        assert shares is not None, "a group in which somebody gets no rows"
        devices = self.problem.cluster.devices
        unlike = {
            (devices[place].kind, devices[place].speed, share): place
            for place, share in zip(group, shares, strict=True)
        }
        clock = self.problem.clock
        rows = [
            sum((clock.prefix(place, key[2] * portion, part) for part in parts), start=np.zeros(1))
            for key, place in unlike.items()
        ]
        return np.minimum(np.array(rows), HUGE)

    def seconds(self, group: Sequence[int], start: int, stop: int, parts: Sequence[Part]) -> float:
        """Seconds of units start up to stop for one micro-batch: those of the slowest member."""
        sums = self.sums(group, parts)
        return float((sums[:, stop] - sums[:, start]).max())

    def reduce_price(self, group: Sequence[int]) -> Price:
        """What an all-reduce over the group costs."""
        return reduce_price(self.problem.cluster, group)

    def channels(self, groups: Sequence[Sequence[int]], left: Ints, right: Ints) -> Floats:
        """For pairs of groups: forward latency and seconds a byte, backward latency and seconds a byte."""
        from penstock.planners.costs.channel_kernel import channel_prices

        cluster = self.problem.cluster
        offsets = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
        interfaces = [
            math.inf if host.interface_bandwidth is None else host.interface_bandwidth for host in cluster.hosts
        ]
        found = channel_prices(
            left.astype(np.int64),
            right.astype(np.int64),
            offsets,
            np.array([place for group in groups for place in group], dtype=np.int64),
            # A group that has no shares is never used: any price will do.
            np.array([share for group in groups for share in self.shares(group) or [1 / len(group)] * len(group)]),
            np.ascontiguousarray(cluster.bandwidth),
            np.ascontiguousarray(cluster.latency_s),
            cluster.host_index,
            np.array(interfaces),
        )
        return np.asarray(np.minimum(found, HUGE))

    def channel(self, left: Sequence[int], right: Sequence[int]) -> Channel:
        """The channel from one group to another."""
        values = self.channels([left, right], np.array([0]), np.array([1]))[0].tolist()
        return Channel(Price(values[0], values[1]), Price(values[2], values[3]))

    @cached_property
    def _sizes(self) -> UnitCosts:
        profile = self.problem.profile
        return fit(profile, profile.kinds[0]).at(self.problem.rows_per_microbatch)


def reduce_price(cluster: Cluster, group: Sequence[int]) -> Price:
    """Seconds of a ring all-reduce over a group as a line in its bytes; nothing for a single device."""
    size = len(group)
    if size == 1:
        return Price(0.0, 0.0)
    if size <= SEARCHED_RING:
        ring = reduce_ring(cluster, group, 1.0)
        return Price(min(ring.latency_s, HUGE), min(ring.occupancy_s, HUGE))
    order = sorted(group, key=lambda place: (int(cluster.host_index[place]), place))
    ahead = order[1:] + order[:1]
    rate = float(cluster.bandwidth[order, ahead].min())
    # Host by host, a ring leaves and enters every host just once.
    hosts = {int(cluster.host_index[place]) for place in group}
    if len(hosts) > 1:
        rate = min([rate, *(cluster.hosts[host].interface_bandwidth or math.inf for host in hosts)])
    latency = 2 * (size - 1) * float(cluster.latency_s[order, ahead].max())
    return Price(min(latency, HUGE), min(2 * (size - 1) / size / rate, HUGE))
