"""Costs of groups of devices: shares of rows, seconds of ranges of layers, all-reduces, channels between groups.

For planners that replicate stages. A group takes rows in proportion to its replicas' speeds, a range of layers takes as
long as on the slowest replica, gradients are reduced over a ring, and a channel between two groups is as fast as its
busiest link or shared interface. Tied parameters count with every layer that holds them.

All numbers stay below `HUGE`, so that sums and products are finite for any speeds and bandwidths.
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
from penstock.plan.pricing import Part, measured_for, reduce_line
from penstock.planners.problem import Problem
from penstock.profile import UnitCosts, fit

HUGE = 1e200
SEARCHED_RING = 6
"""Larger groups are priced with the ring that visits host by host, which is optimal if hosts are alike inside."""

FORWARD: tuple[Part, ...] = ("forward_s",)
BACKWARD: tuple[Part, ...] = ("input_grad_s", "weight_grad_s")


class Price(NamedTuple):
    """Seconds as an affine function of bytes."""

    latency_s: float
    seconds_per_byte: float

    def of(self, num_bytes: float) -> float:
        """Seconds of `num_bytes`."""
        return self.latency_s + self.seconds_per_byte * num_bytes


class Channel(NamedTuple):
    """Both directions between two groups."""

    forward: Price
    backward: Price

    def both_ways_s(self, num_bytes: float) -> float:
        """Seconds of an activation of `num_bytes` and of its gradient."""
        return self.forward.of(num_bytes) + self.backward.of(num_bytes)


@dataclass(frozen=True, eq=False)
class GroupCosts:
    """Costs of the groups of one problem. A group is a tuple of indices into the cluster's devices."""

    problem: Problem

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The devices to plan for: the first `pipeline_depth`, host by host in the order in which hosts appear."""
        chosen = range(self.problem.cluster.num_devices)[: self.problem.pipeline_depth]
        host = self.problem.cluster.host_index
        seen = {int(host[device]): device for device in reversed(chosen)}
        return tuple(sorted(chosen, key=lambda device: (seen[int(host[device])], device)))

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The devices to plan for, grouped by host."""
        groups: dict[int, list[int]] = {}
        for device in self.devices:
            groups.setdefault(int(self.problem.cluster.host_index[device]), []).append(device)
        return tuple(tuple(group) for group in groups.values())

    @cached_property
    def cut_bytes(self) -> Floats:
        """Bytes that cross each cut, from cut 0 to the number of layers; 0 at both ends."""
        sizes = self._sizes.cut_bytes
        return np.concatenate([[0.0], sizes[:-1], [0.0]])

    @cached_property
    def parameter_sums(self) -> Floats:
        """Running sums of the bytes of the layers' trained parameters: those that an all-reduce sums."""
        return np.concatenate([[0.0], np.cumsum(self._sizes.trained_bytes)])

    @cached_property
    def model_s(self) -> Floats:
        """Seconds of the whole model on each device of the cluster; 0 for devices that are not planned for."""
        seconds = np.zeros(self.problem.cluster.num_devices)
        for device in self.devices:
            seconds[device] = self.problem.clock.work(device)[-1]
        return seconds

    @cached_property
    def fastest(self) -> int:
        """The device that is fastest with the whole model; the first of equal ones."""
        return min(self.devices, key=lambda device: float(self.model_s[device]))

    def shares(self, group: Sequence[int]) -> tuple[float, ...] | None:
        """The replicas' shares of the rows, by speed; None if a device is too slow to get any."""
        if len(group) == 1:
            return (1.0,)
        seconds = [float(self.model_s[device]) for device in group]
        speeds = [min(seconds) / value for value in seconds] if all(seconds) else [1.0 for _ in group]
        total = math.fsum(speeds)
        shares = tuple(speed / total for speed in speeds)
        return shares if all(share > SHARE_TOLERANCE for share in shares) else None

    def plan_group(self, group: Sequence[int]) -> Group:
        """The group as a plan holds it."""
        shares = self.shares(group)
        assert shares is not None, "a device of the group gets no rows"
        devices = self.problem.cluster.devices
        return tuple(Replica(devices[device].name, share) for device, share in zip(group, shares, strict=True))

    def sums(self, group: Sequence[int], parts: Sequence[Part], *, portion: float = 1.0) -> Floats:
        """Running sums of the layers' seconds, with one row for each distinct replica (kind, speed and share).

        Layers a up to b take the maximum of sums[:, b] - sums[:, a]. With a `portion`, the group has only that part
        of every micro-batch. The group must have shares.
        """
        shares = self.shares(group)
        assert shares is not None, "a device of the group gets no rows"
        devices = self.problem.cluster.devices
        unlike = {
            (devices[device].kind, devices[device].speed, share): device
            for device, share in zip(group, shares, strict=True)
        }
        clock = self.problem.clock
        rows = [
            sum((clock.prefix(device, key[2] * portion, part) for part in parts), start=np.zeros(1))
            for key, device in unlike.items()
        ]
        return np.minimum(np.array(rows), HUGE)

    def seconds(self, group: Sequence[int], start: int, stop: int, parts: Sequence[Part]) -> float:
        """Seconds of layers start up to stop for one micro-batch on the slowest replica."""
        sums = self.sums(group, parts)
        return float((sums[:, stop] - sums[:, start]).max())

    def reduce_price(self, group: Sequence[int]) -> Price:
        """The price of an all-reduce over the group."""
        return reduce_price(self.problem.cluster, group)

    def channels(self, groups: Sequence[Sequence[int]], left: Ints, right: Ints) -> Floats:
        """[pair, 4]: forward latency and seconds per byte, backward latency and seconds per byte."""
        from penstock.planners.costs.channel_kernel import Groups, Network, channel_prices

        cluster = self.problem.cluster
        offsets = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
        interfaces = [
            math.inf if host.interface_bandwidth is None else host.interface_bandwidth for host in cluster.hosts
        ]
        replicas = Groups(
            offsets,
            np.array([device for group in groups for device in group], dtype=np.int64),
            # A group without shares is never used, so its price does not matter.
            np.array([share for group in groups for share in self.shares(group) or [1 / len(group)] * len(group)]),
        )
        network = Network(
            np.ascontiguousarray(cluster.bandwidth),
            np.ascontiguousarray(cluster.latency_s),
            cluster.host_index,
            np.array(interfaces),
        )
        prices = channel_prices(left.astype(np.int64), right.astype(np.int64), replicas, network)
        return np.asarray(np.minimum(prices, HUGE))

    def channel(self, left: Sequence[int], right: Sequence[int]) -> Channel:
        """The channel from one group to another."""
        values = self.channels([left, right], np.array([0]), np.array([1]))[0].tolist()
        return Channel(Price(values[0], values[1]), Price(values[2], values[3]))

    @cached_property
    def _sizes(self) -> UnitCosts:
        profile = self.problem.profile
        return fit(profile, profile.kinds[0]).at(self.problem.rows_per_microbatch)


def reduce_price(cluster: Cluster, group: Sequence[int]) -> Price:
    """The price of an all-reduce over a group; 0 for a single device."""
    size = len(group)
    if size == 1:
        return Price(0.0, 0.0)
    if size <= SEARCHED_RING or measured_for(cluster, group) is not None:
        constant_s, seconds_per_byte = reduce_line(cluster, group)
        return Price(min(constant_s, HUGE), min(seconds_per_byte, HUGE))
    order = sorted(group, key=lambda device: (int(cluster.host_index[device]), device))
    ahead = order[1:] + order[:1]
    rate = float(cluster.bandwidth[order, ahead].min())
    # A ring that visits host by host leaves and enters every host exactly once.
    hosts = {int(cluster.host_index[device]) for device in group}
    if len(hosts) > 1:
        rate = min([rate, *(cluster.hosts[host].interface_bandwidth or math.inf for host in hosts)])
    latency = 2 * (size - 1) * float(cluster.latency_s[order, ahead].max())
    return Price(min(latency, HUGE), min(2 * (size - 1) / size / rate, HUGE))
