"""A quick lower bound for every map of a small problem, for all maps at once.

For one map, everything is on known devices, so the chain of one micro-batch (F up, I down, then W, step and the
parameters' return of the first stage) has known seconds, and so have the way to each job and the rest behind it. A
device cannot begin before the chain gets to its first unit; when it is done with its last I, the chain still goes on
from there, and its own W and steps may be left. So, with the work of M micro-batches,

    wait + F + R + I + max(W + steps, rest of the chain)

for every device; likewise for all messages of every link; M times the longest job of the chain and once the rest of it;
and for every moved stage all work of its device, its step and its parameters' return.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.planners.bounds import UnitTimes
from penstock.planners.exact.maps import Maps


def map_bounds(times: UnitTimes, maps: Maps) -> Floats:
    """Seconds that no order of each map is under."""
    return _Bounds(times, maps).best()


class _Bounds:
    """All arrays are [map], [map, unit] or, by device, [map]."""

    def __init__(self, times: UnitTimes, maps: Maps) -> None:
        self.times, self.maps = times, maps
        self.num = times.num_microbatches
        unit = np.arange(times.num_units)
        again = times.forward.whole[maps.backward, unit]
        self.ahead = times.forward.whole[maps.forward, unit]
        self.repeat = np.where(maps.again, again, 0.0)
        self.back = times.input_grad.whole[maps.backward, unit]
        self.weights = times.weight_grad.whole[maps.backward, unit]
        self.step = times.step.whole[maps.backward, unit]
        pair = maps.forward * times.cluster.num_devices + maps.backward
        self.begins = np.concatenate([np.ones((len(pair), 1), bool), pair[:, 1:] != pair[:, :-1]], axis=1)
        self.has_remote_backward = maps.forward != maps.backward
        kept = np.where(maps.again, np.where(self.begins, times.input_bytes, 0.0), times.saved_bytes)
        self.shipped = self._stage_sums(np.where(self.has_remote_backward, kept, 0.0))
        self._follow_chain()

    def _stage_sums(self, values: Floats) -> Floats:
        """For every unit the sum over its stage."""
        sums = values.copy()
        for unit in range(1, values.shape[1]):
            sums[:, unit] += np.where(self.begins[:, unit], 0.0, sums[:, unit - 1])
        for unit in reversed(range(values.shape[1] - 1)):
            sums[:, unit] = np.where(self.begins[:, unit + 1], sums[:, unit], sums[:, unit + 1])
        return sums

    def _hop(self, num_bytes: Floats | float, source: Ints, target: Ints) -> tuple[Floats, Floats]:
        """Seconds on the link, and of latency; none where source and target are the same."""
        latency = self.times.cluster.latency_s[source, target]
        return np.asarray(num_bytes / self.times.rate[source, target]), latency

    def _follow_chain(self) -> None:
        times, maps, last = self.times, self.maps, self.times.num_units - 1
        self.arrives, self.done, self.turned, self.undone = (np.zeros_like(self.ahead) for _ in range(4))
        for unit in range(last + 1):
            if unit:
                ends = maps.forward[:, unit - 1], maps.forward[:, unit]
                self.arrives[:, unit] = self.done[:, unit - 1] + sum(self._hop(times.cut_bytes[unit - 1], *ends))
            self.done[:, unit] = self.arrives[:, unit] + self.ahead[:, unit]
        ends = maps.forward[:, last], maps.backward[:, last]
        shipped = sum(self._hop(self.shipped[:, last], *ends))
        self.turned[:, last] = self.done[:, last] + shipped + self._stage_sums(self.repeat)[:, last]
        for unit in reversed(range(last + 1)):
            if unit < last:
                ends = maps.backward[:, unit + 1], maps.backward[:, unit]
                self.turned[:, unit] = self.undone[:, unit + 1] + sum(self._hop(times.cut_bytes[unit], *ends))
            self.undone[:, unit] = self.turned[:, unit] + self.back[:, unit]
        closing = self._stage_sums(self.weights) + self._stage_sums(self.step) + self.returning
        self.end = self.undone[:, 0] + closing[:, 0]

    @cached_property
    def returning(self) -> Floats:
        """Seconds in which the parameters of each unit's stage go back to its forward device."""
        num_bytes = self._stage_sums(np.where(self.has_remote_backward, self.times.returned_bytes, 0.0))
        wire, latency = self._hop(num_bytes, self.maps.backward, self.maps.forward)
        return np.where(num_bytes > 0, wire + latency, 0.0)

    def best(self) -> Floats:
        """The largest of all bounds."""
        found = self.end.copy()
        for bound in (*self._by_device(), *self._by_link()):
            np.maximum(found, bound, out=found)
        return found

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
            first = np.where(ahead, self.arrives, np.where(back & maps.again, self.done, np.inf))
            wait = np.minimum(first, np.where(back, self.turned, np.inf)).min(axis=1)
            wait = np.where(used, wait, 0.0)
            last = np.maximum(
                np.where(back, self.undone, -np.inf).max(axis=1), np.where(ahead, self.done, 0.0).max(axis=1)
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
            here = np.flatnonzero(source != target)
            at = every[here], source[here], target[here]
            busy[at] += self.num * wire[here]
            head[at] = np.minimum(head[at], before[here])
            tail[at] = np.minimum(tail[at], after[here])
        bound = np.where(busy > 0, head + busy + tail, 0.0)
        yield np.nan_to_num(bound, posinf=0.0).max(axis=(1, 2))

    def _messages(self) -> Iterator[tuple[Ints, Ints, Floats, Floats, Floats]]:
        """Source, target, seconds on the link, when the first can start, what follows when the last is through."""
        times, maps = self.times, self.maps
        repeat = self._stage_sums(self.repeat)
        for unit in range(times.num_units):
            if unit:
                source, target = maps.forward[:, unit - 1], maps.forward[:, unit]
                wire, latency = self._hop(times.cut_bytes[unit - 1], source, target)
                yield source, target, wire, self.done[:, unit - 1], latency + self.end - self.arrives[:, unit]
                source, target = maps.backward[:, unit], maps.backward[:, unit - 1]
                wire, latency = self._hop(times.cut_bytes[unit - 1], source, target)
                yield source, target, wire, self.undone[:, unit], latency + self.end - self.turned[:, unit - 1]
            # What a stage ships leaves behind its last unit; the others send it to themselves, which costs nothing.
            closes = self.begins[:, unit + 1] if unit < times.num_units - 1 else np.ones(len(self.end), dtype=bool)
            source = maps.forward[:, unit]
            target = np.where(closes, maps.backward[:, unit], source)
            wire, latency = self._hop(self.shipped[:, unit], source, target)
            rest = latency + repeat[:, unit] + self.end - self.turned[:, unit]
            yield source, target, wire, self.done[:, unit], rest
