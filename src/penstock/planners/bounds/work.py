"""Lower bounds from work: total work over total speed, plus the waits at both ends for plans without replication.

*Prices.* Give every device d a price y_d >= 0; the prices sum to 1. Every device spends the whole iteration T, so
T = sum y_d T >= sum y_d (work of d + wait of d). F of layer u (and likewise its I, W and step, which share devices) is
divided over devices with shares x_d that sum to 1. A device with share x takes base + x slope >= x (base + slope) for
it, because x <= 1, and the step takes its whole time with any share. (With a sharded optimizer it takes 1/r of it on
each of r replicas: shares that sum to 1, but are not those of the rows, so it is a job of its own then.) So a job costs
at least sum x_d y_d t_d, which is
at least min_d y_d t_d, where t_d is M times its time with all rows. Every choice of prices gives a valid bound; by
duality the best one is the value of the linear program. Devices of one kind differ only by a factor, their speed, and
prices in proportion to speed are optimal for them. So the search is over one weight per kind: it maximizes a concave
function iteratively.

*Waits*, without replication. Count F, I and W, and ignore recomputation. If the first such job on a device is F of
layer u, then u's F is on this device, that of u-1 is not, and F of all layers before u and a transfer come first. No
two devices have the same u. If the first job is a backward, all F come first; a device without jobs waits for the whole
iteration. So the sorted waits are at least the sorted `least_waits`, and for any assignment of waits to devices,
sum y_d wait_d is at least the sum of the sorted prices, largest first, times the sorted waits, least first. The same
holds at the end: after the last I of its first layer b, a device has only W and steps left, while I of all layers
before b and W and step of layer 0 follow elsewhere. So an iteration takes at least a device's wait, its F and I, and
this end (without its W), and at least its wait and all its work (without the end), and any convex combination of the
two.
"""

import numpy as np

from penstock.arrays import Floats
from penstock.planners.bounds.chain import MAX_DEVICES, ShortestPaths
from penstock.planners.bounds.unit_seconds import UnitTimes

MIXTURES = (0.0, 0.25, 0.5, 0.75, 1.0)
STEPS = 120
WIDEST, SHARPER = 0.5, 0.95
GRIDS = 8
GRID_POINTS = 17


class Prices:
    """Prices of devices, with one weight per device kind."""

    def __init__(self, times: UnitTimes) -> None:
        devices = times.cluster.devices
        kinds = list(dict.fromkeys(device.kind for device in devices))
        self.kind = np.array([kinds.index(device.kind) for device in devices])
        self.speed = np.array([device.speed for device in devices])
        self.total = np.bincount(self.kind, weights=self.speed)
        self.first = np.array([int(np.argmax(self.kind == kind)) for kind in range(len(kinds))])

    def best(self, jobs: Floats, waits: Floats) -> float:
        """Search for the largest bound for jobs [device, job] and sorted waits [device]."""
        table = jobs[self.first] * (self.speed[self.first] / self.total)[:, None]
        count = len(self.first)
        weights = np.full(count, 1 / count)
        best = float(self._values(weights[None], table, waits)[0])
        best_weights = weights
        for step in range(STEPS if count > 2 else 0):
            # Divide a job between kinds of almost equal price, ever more sharply, to keep the search from oscillating.
            prices = weights[:, None] * table
            width = WIDEST * SHARPER**step * prices.mean() or 1.0
            portion = np.exp((prices.min(axis=0) - prices) / width)
            rise = (portion / portion.sum(axis=0) * table).sum(axis=1)
            rise = rise - (weights * rise).sum()
            weights = weights * np.exp(rise / (float(np.abs(rise).max()) or 1.0) * WIDEST * SHARPER**step)
            weights = weights / weights.sum()
            value = float(self._values(weights[None], table, waits)[0])
            if value > best:
                best, best_weights = value, weights
        return self._polish(best_weights, best, table, waits)

    def _polish(self, weights: Floats, value: float, table: Floats, waits: Floats) -> float:
        """Shift weight between two kinds at a time, on finer and finer grids around the best value."""
        for one in range(len(weights)):
            for other in range(one):
                both = weights[one] + weights[other]
                low, high = 0.0, float(both)
                for _ in range(GRIDS):
                    grid = np.linspace(low, high, GRID_POINTS)
                    tries = np.repeat(weights[None], GRID_POINTS, axis=0)
                    tries[:, one], tries[:, other] = grid, both - grid
                    values = self._values(tries, table, waits)
                    best_index = int(np.argmax(values))
                    low, high = float(grid[max(best_index - 1, 0)]), float(grid[min(best_index + 1, GRID_POINTS - 1)])
                    if values[best_index] > value:
                        value, weights = float(values[best_index]), tries[best_index]
        return value

    def _values(self, weights: Floats, table: Floats, waits: Floats) -> Floats:
        """The bounds for rows of weights [row, kind]."""
        prices = np.sort(weights[:, self.kind] * (self.speed / self.total[self.kind]), axis=1)[:, ::-1]
        return np.asarray((weights[:, :, None] * table).min(axis=1).sum(axis=1) + (prices * waits).sum(axis=1))


def work_bound(times: UnitTimes, *, remote_backward: bool, sharded_optimizer: bool = False) -> float:
    """Total work over total speed."""
    jobs = job_seconds(times.with_step_share(0.0) if sharded_optimizer else times, 0.0, remote_backward)
    if sharded_optimizer:
        jobs = np.concatenate([jobs, times.step.whole], axis=1)
    return Prices(times).best(jobs, np.zeros(times.cluster.num_devices))


def fill_bound(times: UnitTimes, paths: ShortestPaths, *, remote_backward: bool) -> float:
    """Work and the waits of devices before and after it, for plans without replication."""
    prices = Prices(times)
    starts, ends = least_waits(times, paths), _ends(times, paths)
    return max(
        prices.best(job_seconds(times, end_weight, remote_backward), starts + end_weight * ends)
        for end_weight in MIXTURES
    )


def job_seconds(times: UnitTimes, end_weight: float, remote_backward: bool) -> Floats:
    """Seconds [device, job] of an iteration, with W and the steps scaled by 1 - `end_weight`."""
    num = times.num_microbatches
    forward = num * times.forward.whole
    backward = (
        num * (times.input_grad.whole + (1 - end_weight) * times.weight_grad.whole)
        + (1 - end_weight) * times.step.whole
    )
    return np.concatenate([forward, backward], axis=1) if remote_backward else forward + backward


def least_waits(times: UnitTimes, paths: ShortestPaths) -> Floats:
    """Sorted least waits before the devices' first jobs: 0 for one device, then one more layer for each."""
    done = paths.forward_before + times.forward.whole.T
    whole_chain_s = float(done[-1].min())
    by_unit = [0.0]
    for unit in range(1, times.num_units):
        by_unit.append(_cheapest(done[unit - 1][:, None], times, float(times.cut_bytes[unit - 1])))
    return _fill_up(by_unit, whole_chain_s, times.cluster.num_devices)


def _ends(times: UnitTimes, paths: ShortestPaths) -> Floats:
    """Sorted least times that follow the devices' last I."""
    follows = paths.backward_after + times.input_grad.whole.T
    whole_chain_s = float(follows[-1].min())
    by_unit = [float(paths.end.min())]
    for unit in range(1, times.num_units):
        by_unit.append(_cheapest(follows[unit - 1][None, :], times, float(times.grad_bytes[unit - 1])))
    return _fill_up(by_unit, whole_chain_s, times.cluster.num_devices)


def _cheapest(seconds: Floats, times: UnitTimes, num_bytes: float) -> float:
    """The least sum of a device's seconds and a transfer to or from another device; 0 with a single device."""
    if times.cluster.num_devices == 1:
        return 0.0
    if times.cluster.num_devices > MAX_DEVICES:
        return float(seconds.min())
    table = seconds + times.hop(num_bytes)
    return float(table[~np.eye(len(table), dtype=bool)].min())


def _fill_up(by_unit: list[float], whole_chain_s: float, count: int) -> Floats:
    """The `count` least values: one for each layer, filled up with `whole_chain_s`."""
    least = np.sort(np.minimum(by_unit, whole_chain_s))[:count]
    return np.concatenate([least, np.full(count - len(least), whole_chain_s)])
