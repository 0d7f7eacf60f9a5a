"""The compiled price of a byte between two groups, for many pairs of groups at once.

Each group takes the rows of a micro-batch in the order of its replicas (plan/pricing/row_overlap.py), and every pair of
replicas with rows in common exchanges them. All transfers run at the same time; the busiest directed link or shared
interface determines the seconds per byte, and the longest latency is added. Cost: O(replicas of both groups) for each
pair of groups.

Import this module lazily: it compiles with numba.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import NEGLIGIBLE_SHARE


class Groups(NamedTuple):
    """Group g has the replicas offsets[g] up to offsets[g + 1]."""

    offsets: Ints
    devices: Ints
    shares: Floats


class Network(NamedTuple):
    """The links between devices, and the hosts with their interfaces."""

    bandwidth: Floats
    """[source, target] bytes per second."""
    latency_s: Floats
    """[source, target]"""
    host: Ints
    """[device]"""
    interface: Floats
    """[host] bandwidth of the shared interface, inf without one."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def channel_prices(left: Ints, right: Ints, groups: Groups, network: Network) -> Floats:
    """[pair, 4]: forward latency, forward seconds per byte, backward latency, backward seconds per byte."""
    offsets, devices, shares = groups.offsets, groups.devices, groups.shares
    bandwidth, latency_s, host, interface = network.bandwidth, network.latency_s, network.host, network.interface
    prices = np.zeros((len(left), 4))
    leaving, entering = np.zeros(len(interface)), np.zeros(len(interface))
    for pair in range(len(left)):
        i, i_end = offsets[left[pair]], offsets[left[pair] + 1]
        j, j_end = offsets[right[pair]], offsets[right[pair] + 1]
        left_stop = 1.0 if i + 1 == i_end else shares[i]
        right_stop = 1.0 if j + 1 == j_end else shares[j]
        left_sum, right_sum = shares[i], shares[j]
        begin = 0.0
        while i < i_end and j < j_end:
            stop = min(left_stop, right_stop)
            portion = stop - begin
            a, b = devices[i], devices[j]
            if portion > NEGLIGIBLE_SHARE and a != b:
                prices[pair, 0] = max(prices[pair, 0], latency_s[a, b])
                prices[pair, 1] = max(prices[pair, 1], portion / bandwidth[a, b])
                prices[pair, 2] = max(prices[pair, 2], latency_s[b, a])
                prices[pair, 3] = max(prices[pair, 3], portion / bandwidth[b, a])
                if host[a] != host[b]:
                    leaving[host[a]] += portion
                    entering[host[b]] += portion
            begin = max(begin, stop)
            next_left, next_right = left_stop <= stop, right_stop <= stop
            if next_left:
                i += 1
                if i < i_end:
                    left_sum += shares[i]
                    left_stop = 1.0 if i + 1 == i_end else left_sum
            if next_right:
                j += 1
                if j < j_end:
                    right_sum += shares[j]
                    right_stop = 1.0 if j + 1 == j_end else right_sum
        # Bytes that leave a host in the forward enter it in the backward. An interface is as fast in both directions.
        for loads, group in ((leaving, left[pair]), (entering, right[pair])):
            for replica in range(offsets[group], offsets[group + 1]):
                at = host[devices[replica]]
                prices[pair, 1] = max(prices[pair, 1], loads[at] / interface[at])
                prices[pair, 3] = max(prices[pair, 3], loads[at] / interface[at])
                loads[at] = 0.0
    return prices
