"""A quick lower bound for every map of a small problem, computed for all maps at once.

A map fixes the device of every job, so the chain of one micro-batch (F up, I down, then W, step and weight return of
the first stage) has known seconds, and so have its parts before and behind each job. A device cannot start before the
chain reaches its first layer; after its last I, the rest of the chain follows, and its own W and steps may remain. So,
with the work of M micro-batches, an iteration takes at least

    wait + F + R + I + max(W + steps, rest of the chain)

for every device. The same holds for all messages of every link; for M times the longest job of the chain and once the
rest of it; and for every stage with a remote backward: all work of its device, its step and its weight return.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.planners.bounds import UnitTimes
from penstock.planners.exact.maps import Maps


def map_bounds(times: UnitTimes, maps: Maps) -> Floats:
    """For each map, a lower bound on the seconds of every order of its jobs."""
    return _Bounds(times, maps).best()


class _Bounds:
    """Arrays are [map] or [map, unit]."""

    def __init__(self, times: UnitTimes, maps: Maps) -> None:
        self.times, self.maps = times, maps
        self.num = times.num_microbatches
        unit = np.arange(times.num_units)
        again = times.forward.whole[maps.backward, unit]
        self.ahead = times.forward.whole[maps.forward, unit]
        self.repeat = np.where(maps.recompute, again, 0.0)
        self.back = times.input_grad.whole[maps.backward, unit]
        self.weights = times.weight_grad.whole[maps.backward, unit]
        self.step = times.step.whole[maps.backward, unit]
        pair = maps.forward * times.cluster.num_devices + maps.backward
        self.begins = np.concatenate([np.ones((len(pair), 1), bool), pair[:, 1:] != pair[:, :-1]], axis=1)
        self.has_remote_backward = maps.forward != maps.backward
        kept = np.where(maps.recompute, np.where(self.begins, times.input_bytes, 0.0), times.saved_bytes)
        self.transferred = self._stage_sums(np.where(self.has_remote_backward, kept, 0.0))
        self._follow_chain()

    def _stage_sums(self, values: Floats) -> Floats:
        """For every layer, the sum over its stage."""
        sums = values.copy()
        for unit in range(1, values.shape[1]):
            sums[:, unit] += np.where(self.begins[:, unit], 0.0, sums[:, unit - 1])
        for unit in reversed(range(values.shape[1] - 1)):
            sums[:, unit] = np.where(self.begins[:, unit + 1], sums[:, unit], sums[:, unit + 1])
        return sums

    def _hop(self, num_bytes: Floats | float, source: Ints, target: Ints) -> tuple[Floats, Floats]:
        """Seconds on the link, and latency; 0 if source and target are the same."""
        latency = self.times.cluster.latency_s[source, target]
        return np.asarray(num_bytes / self.times.rate[source, target]), latency

    def _follow_chain(self) -> None:
        times, maps, last = self.times, self.maps, self.times.num_units - 1
        self.forward_starts, self.forward_ends, self.backward_starts, self.backward_ends = (
            np.zeros_like(self.ahead) for _ in range(4)
        )
        for unit in range(last + 1):
            if unit:
                ends = maps.forward[:, unit - 1], maps.forward[:, unit]
                self.forward_starts[:, unit] = self.forward_ends[:, unit - 1] + sum(
                    self._hop(times.cut_bytes[unit - 1], *ends)
                )
            self.forward_ends[:, unit] = self.forward_starts[:, unit] + self.ahead[:, unit]
        ends = maps.forward[:, last], maps.backward[:, last]
        shipped = sum(self._hop(self.transferred[:, last], *ends))
        self.backward_starts[:, last] = self.forward_ends[:, last] + shipped + self._stage_sums(self.repeat)[:, last]
        for unit in reversed(range(last + 1)):
            if unit < last:
                ends = maps.backward[:, unit + 1], maps.backward[:, unit]
                self.backward_starts[:, unit] = self.backward_ends[:, unit + 1] + sum(
                    self._hop(times.grad_bytes[unit], *ends)
                )
            self.backward_ends[:, unit] = self.backward_starts[:, unit] + self.back[:, unit]
        closing = self._stage_sums(self.weights) + self._stage_sums(self.step) + self.returning
        self.end = self.backward_ends[:, 0] + closing[:, 0]

    @cached_property
    def returning(self) -> Floats:
        """Seconds of the weight return of each layer's stage."""
        num_bytes = self._stage_sums(np.where(self.has_remote_backward, self.times.returned_bytes, 0.0))
        wire, latency = self._hop(num_bytes, self.maps.backward, self.maps.forward)
        return np.where(num_bytes > 0, wire + latency, 0.0)

    def best(self) -> Floats:
        """The largest of all bounds."""
        largest = self.end.copy()
        for bound in (*self._by_device(), *self._by_link()):
            np.maximum(largest, bound, out=largest)
        return largest

    def _by_device(self) -> Iterator[Floats]:
        maps, num = self.maps, self.num
        for device in range(self.times.cluster.num_devices):
            ahead, back = maps.forward == device, maps.backward == device
            forward = np.where(ahead, self.ahead, 0.0).sum(axis=1)
            inputs = np.where(back, self.back, 0.0).sum(axis=1)
            repeat = np.where(back, self.repeat, 0.0).sum(axis=1)
            weights = np.where(back, self.weights, 0.0).sum(axis=1)
            steps = np.where(back, self.step, 0.0).sum(axis=1)
            used = (ahead | back).any(axis=1)
            first = np.where(ahead, self.forward_starts, np.where(back & maps.recompute, self.forward_ends, np.inf))
            wait = np.minimum(first, np.where(back, self.backward_starts, np.inf)).min(axis=1)
            wait = np.where(used, wait, 0.0)
            last = np.maximum(
                np.where(back, self.backward_ends, -np.inf).max(axis=1),
                np.where(ahead, self.forward_ends, 0.0).max(axis=1),
            )
            rest = np.where(used, self.end - last, 0.0)
            yield wait + num * (forward + repeat + inputs) + np.maximum(num * weights + steps, rest)
            yield self.end + (num - 1) * np.maximum(forward, inputs)
            work = wait + num * (forward + repeat + inputs + weights)
            returned = self._stage_sums(self.step) + self.returning
            yield work + np.where(back & self.has_remote_backward, returned, 0.0).max(axis=1)

    def _by_link(self) -> Iterator[Floats]:
        devices = self.times.cluster.num_devices
        count = len(self.end)
        every = np.arange(count)
        busy = np.zeros((count, devices, devices))
        head = np.full((count, devices, devices), np.inf)
        tail = np.full((count, devices, devices), np.inf)
        for source, target, wire, before, after in self._messages():
            rows = np.flatnonzero(source != target)
            at = every[rows], source[rows], target[rows]
            busy[at] += self.num * wire[rows]
            head[at] = np.minimum(head[at], before[rows])
            tail[at] = np.minimum(tail[at], after[rows])
        bound = np.where(busy > 0, head + busy + tail, 0.0)
        yield np.nan_to_num(bound, posinf=0.0).max(axis=(1, 2))

    def _messages(self) -> Iterator[tuple[Ints, Ints, Floats, Floats, Floats]]:
        """Source, target, seconds on the link, earliest start of the first, and time behind the last."""
        times, maps = self.times, self.maps
        repeat = self._stage_sums(self.repeat)
        for unit in range(times.num_units):
            if unit:
                source, target = maps.forward[:, unit - 1], maps.forward[:, unit]
                wire, latency = self._hop(times.cut_bytes[unit - 1], source, target)
                yield (
                    source,
                    target,
                    wire,
                    self.forward_ends[:, unit - 1],
                    latency + self.end - self.forward_starts[:, unit],
                )
                source, target = maps.backward[:, unit], maps.backward[:, unit - 1]
                wire, latency = self._hop(times.grad_bytes[unit - 1], source, target)
                yield (
                    source,
                    target,
                    wire,
                    self.backward_ends[:, unit],
                    latency + self.end - self.backward_starts[:, unit - 1],
                )
            # A stage's saved tensors leave behind its last layer; for other layers source and target are the same.
            closes = self.begins[:, unit + 1] if unit < times.num_units - 1 else np.ones(len(self.end), dtype=bool)
            source = maps.forward[:, unit]
            target = np.where(closes, maps.backward[:, unit], source)
            wire, latency = self._hop(self.transferred[:, unit], source, target)
            rest = latency + repeat[:, unit] + self.end - self.backward_starts[:, unit]
            yield source, target, wire, self.forward_ends[:, unit], rest
