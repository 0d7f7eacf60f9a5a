"""Lower bounds from work: all of it over all speed, with the waits at both ends where nothing is replicated.

*Prices.* Give every device d a price y_d >= 0, together 1. Every device is there for the whole iteration T, so
T = sum y_d T >= sum y_d (what d does + what it must wait). Unit u's F (and its I, W, step, which go together) is
divided over devices with shares x_d that add up to 1; a device with share x takes base + x slope >= x (base + slope)
for it, as x <= 1, and the step takes its whole time with any share. So a job costs at least sum x_d y_d t_d, which is
at least min_d y_d t_d, where t_d is its time with all rows, M times. Every choice of prices gives a true bound; the
best one is the linear program's value, by duality. Devices of one kind differ by a factor, their speed; prices in
proportion to speed are best for them, so what is searched is one weight for every kind: a concave function, improved
step by step.

*Waits*, without replication. Count F, I and W (recomputation is left aside). If the first such job on a device is F of
unit u, then u's F is on this device alone, that of u-1 is not, and F of all units before u and a transfer to here come
first. No two devices have the same u. If its first is a backward job, all F come first, and a device without jobs waits
for everything. So the waits, sorted, are at least the sorted `least_waits`; and whichever device has which wait, sum
y_d wait_d is at least the largest price times the least wait, and so on. Likewise at the end: when a device is done
with its last I of its first unit b, only W and steps are left for it, and I of all units before b and W and step of
unit 0 follow. So an iteration takes at least a device's wait, its F and I, and this end (its W not counted), and at
least its wait and all its work (the end not counted), and any mixture of the two.
"""

import numpy as np

from penstock.arrays import Floats
from penstock.planners.bounds.chain import MOST_DEVICES, Ways
from penstock.planners.bounds.unit_seconds import UnitTimes

MIXTURES = (0.0, 0.25, 0.5, 0.75, 1.0)
STEPS = 120
WIDEST, SHARPER = 0.5, 0.95
GRIDS = 8
GRID_POINTS = 17


class Prices:
    """Prices of devices, one weight a kind: how much work and waits cost at least."""

    def __init__(self, times: UnitTimes) -> None:
        devices = times.cluster.devices
        kinds = list(dict.fromkeys(device.kind for device in devices))
        self.kind = np.array([kinds.index(device.kind) for device in devices])
        self.speed = np.array([device.speed for device in devices])
        self.total = np.bincount(self.kind, weights=self.speed)
        self.first = np.array([int(np.argmax(self.kind == kind)) for kind in range(len(kinds))])

    def best(self, jobs: Floats, waits: Floats) -> float:
        """The largest bound found for jobs [device, job] and sorted waits [device]."""
        table = jobs[self.first] * (self.speed[self.first] / self.total)[:, None]
        count = len(self.first)
        weights = np.full(count, 1 / count)
        best = float(self._values(weights[None], table, waits)[0])
        best_weights = weights
        for step in range(STEPS if count > 2 else 0):
            # Between almost equally cheap kinds a job is divided, ever more sharply, so as not to go to and fro.
            prices = weights[:, None] * table
            width = WIDEST * SHARPER**step * prices.mean() or 1.0
            part = np.exp((prices.min(axis=0) - prices) / width)
            rise = (part / part.sum(axis=0) * table).sum(axis=1)
            rise = rise - weights @ rise
            weights = weights * np.exp(rise / (float(np.abs(rise).max()) or 1.0) * WIDEST * SHARPER**step)
            weights = weights / weights.sum()
            value = float(self._values(weights[None], table, waits)[0])
            if value > best:
                best, best_weights = value, weights
        return self._polish(best_weights, best, table, waits)

    def _polish(self, weights: Floats, value: float, table: Floats, waits: Floats) -> float:
        """Shift weight between two kinds at a time, as far as it helps: on finer and finer grids around the best."""
        for one in range(len(weights)):
            for other in range(one):
                both = weights[one] + weights[other]
                low, high = 0.0, float(both)
                for _ in range(GRIDS):
                    grid = np.linspace(low, high, GRID_POINTS)
                    tries = np.repeat(weights[None], GRID_POINTS, axis=0)
                    tries[:, one], tries[:, other] = grid, both - grid
                    values = self._values(tries, table, waits)
                    place = int(np.argmax(values))
                    low, high = float(grid[max(place - 1, 0)]), float(grid[min(place + 1, GRID_POINTS - 1)])
                    if values[place] > value:
                        value, weights = float(values[place]), tries[place]
        return value

    def _values(self, weights: Floats, table: Floats, waits: Floats) -> Floats:
        """The bounds for some weights [try, kind]."""
        prices = np.sort(weights[:, self.kind] * (self.speed / self.total[self.kind]), axis=1)[:, ::-1]
        return np.asarray((weights[:, :, None] * table).min(axis=1).sum(axis=1) + prices @ waits)


def work_bound(times: UnitTimes, *, moved: bool) -> float:
    """All work over all speed."""
    return Prices(times).best(jobs_of(times, 0.0, moved), np.zeros(times.cluster.num_devices))


def fill_bound(times: UnitTimes, way: Ways, *, moved: bool) -> float:
    """Work, and what devices wait before and after it, if nothing is replicated."""
    prices = Prices(times)
    starts, ends = least_waits(times, way), _ends(times, way)
    return max(prices.best(jobs_of(times, part, moved), starts + part * ends) for part in MIXTURES)


def jobs_of(times: UnitTimes, part: float, moved: bool) -> Floats:
    """Seconds [device, job] of an iteration; W and the steps count as far as `part` leaves them."""
    num = times.num_microbatches
    ahead = num * times.forward.whole
    back = num * (times.input_grad.whole + (1 - part) * times.weight_grad.whole) + (1 - part) * times.step.whole
    return np.concatenate([ahead, back], axis=1) if moved else ahead + back


def least_waits(times: UnitTimes, way: Ways) -> Floats:
    """The least waits before the first job, sorted: nothing for one device, then one unit more for each."""
    done = way.forward_before + times.forward.whole.T
    everything = float(done[-1].min())
    by_unit = [0.0]
    for unit in range(1, times.num_units):
        by_unit.append(_cheapest(done[unit - 1][:, None], times, unit - 1))
    return _filled(by_unit, everything, times.cluster.num_devices)


def _ends(times: UnitTimes, way: Ways) -> Floats:
    """The least that follows a device's last I, sorted."""
    follows = way.backward_after + times.input_grad.whole.T
    everything = float(follows[-1].min())
    by_unit = [float(way.end.min())]
    for unit in range(1, times.num_units):
        by_unit.append(_cheapest(follows[unit - 1][None, :], times, unit - 1))
    return _filled(by_unit, everything, times.cluster.num_devices)


def _cheapest(seconds: Floats, times: UnitTimes, cut: int) -> float:
    """The least of some seconds by device and a transfer between two different ones; 0 if there is only one."""
    if times.cluster.num_devices == 1:
        return 0.0
    if times.cluster.num_devices > MOST_DEVICES:
        return float(seconds.min())
    table = seconds + times.hop(float(times.cut_bytes[cut]))
    return float(table[~np.eye(len(table), dtype=bool)].min())


def _filled(by_unit: list[float], everything: float, count: int) -> Floats:
    """The `count` least, of which each unit gives one and `everything` as many as are needed."""
    least = np.sort(np.minimum(by_unit, everything))[:count]
    return np.concatenate([least, np.full(count - len(least), everything)])
