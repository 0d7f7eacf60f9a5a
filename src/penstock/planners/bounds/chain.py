"""Lower bounds from the chain of one micro-batch, with all M of them through its slowest job.

The chain of a micro-batch is F of every unit in order, I of every unit in reverse order, then W and the step of unit 0
(which has nobody behind it). A plan runs whole stages at a time, and adds transfers and recomputation: only longer.

*All plans.* Follow one row of a micro-batch (as thin as you like). It passes one member of every group; with share x,
that member takes base + x slope for unit u, and its part of the chain cannot start before the part in front of it. So
the chain of the row is done within the iteration, for every row, thus also on average over the rows. A member with
share x has x of all rows: the average over rows of unit u's part is sum x (base + x slope) over its group, and that is
at least the least value of this over all shares that add up to 1 (`spread`). The same member also does this job for the
same rows of all other micro-batches, one after the other: the first of them after what comes before, the last followed
by what comes after. So M times this job and once every other: for every job of the chain. Where I and W of a unit (or F
too, if backwards are not moved) are on one device, their sum is one such job, with nothing said about what comes after.

*Without replication* every job is on one device, and whoever goes from one device to another pays the transfer: the
cheapest way through all devices, in front of the job and behind it, is found by dynamic programming.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.planners.bounds.unit_seconds import Lines, UnitTimes

HALVINGS = 60
MOST_DEVICES = 128
"""With more devices, transfers are left out: less tight, and still true."""


def spread(lines: Lines) -> Floats:
    """For each unit the least of sum x (base + x per_share) over shares x of the devices that add up to 1.

    By duality: for any m, the sum is at least m - sum max(0, m - base)^2 / (4 per_share) (each device's least value of
    x (base + x per_share) - m x), if m is at most the base wherever per_share is 0. The best m is found by halving.
    """
    flat = lines.per_share <= 0
    low = lines.base.min(axis=0)
    high = np.where(flat, lines.base, lines.base + 2 * lines.per_share).min(axis=0)
    slope = np.where(flat, 1.0, lines.per_share)

    def above(price: Floats) -> Floats:
        return np.where(flat, 0.0, np.maximum(price - lines.base, 0.0))

    for _ in range(HALVINGS):
        middle = (low + high) / 2
        few = (above(middle) / (2 * slope)).sum(axis=0) < 1
        low, high = np.where(few, middle, low), np.where(few, high, middle)
    return np.asarray(low - (above(low) ** 2 / (4 * slope)).sum(axis=0))


@dataclass(frozen=True, eq=False)
class Ways:
    """The cheapest ways of one micro-batch through the devices: all arrays are [unit, device]."""

    forward_before: Floats
    """F of all units in front, and the transfers, until F can start here."""
    forward_after: Floats
    """All that follows F here, to the end of the chain."""
    backward_before: Floats
    backward_after: Floats
    end: Floats
    """[device]: W and step of unit 0."""


def turn_bytes(times: UnitTimes) -> float:
    """What goes from the last forward to the first backward: the last stage's saved tensors, or else its input."""
    return float(min(times.saved_bytes[-1], times.input_bytes.min()))


def ways(times: UnitTimes) -> Ways:
    """Shortest ways through the chain, device by device."""
    num_units, num_devices = times.num_units, times.cluster.num_devices
    ahead, back = times.forward.whole.T, times.input_grad.whole.T
    end = times.weight_grad.whole[:, 0] + times.step.whole[:, 0]

    def hop(num_bytes: float) -> Floats:
        return times.hop(num_bytes) if num_devices <= MOST_DEVICES else np.zeros((num_devices, num_devices))

    crossing = [hop(float(size)) for size in times.cut_bytes[:-1]]
    turn = hop(turn_bytes(times))
    forward_before, forward_after, backward_before, backward_after = np.zeros((4, num_units, num_devices))
    for unit in range(1, num_units):
        done = forward_before[unit - 1] + ahead[unit - 1]
        forward_before[unit] = (done[:, None] + crossing[unit - 1]).min(axis=0)
    backward_before[-1] = ((forward_before[-1] + ahead[-1])[:, None] + turn).min(axis=0)
    for unit in reversed(range(num_units - 1)):
        done = backward_before[unit + 1] + back[unit + 1]
        backward_before[unit] = (done[:, None] + crossing[unit]).min(axis=0)
    backward_after[0] = end
    for unit in range(1, num_units):
        backward_after[unit] = (crossing[unit - 1] + (back[unit - 1] + backward_after[unit - 1])[None, :]).min(axis=1)
    forward_after[-1] = (turn + (back[-1] + backward_after[-1])[None, :]).min(axis=1)
    for unit in reversed(range(num_units - 1)):
        forward_after[unit] = (crossing[unit] + (ahead[unit + 1] + forward_after[unit + 1])[None, :]).min(axis=1)
    return Ways(forward_before, forward_after, backward_before, backward_after, end)


def chain_bound(times: UnitTimes, *, replication: bool, moved: bool) -> float:
    """The largest bound over all jobs of the chain."""
    return _spread_chain(times, moved) if replication else max(_spread_chain(times, moved), _way_chain(times, moved))


def _spread_chain(times: UnitTimes, moved: bool) -> float:
    num = times.num_microbatches
    ahead, back = spread(times.forward), spread(times.input_grad)
    weights = times.weight_grad
    end = float(spread(weights + times.step)[0])
    once = float(ahead.sum() + back.sum()) + end
    before_forward = np.cumsum(ahead) - ahead
    before_backward = ahead.sum() + back.sum() - np.cumsum(back)
    bounds = [
        once + (num - 1) * ahead,
        once + (num - 1) * back,
        before_backward + spread((times.input_grad + weights).times(num) + times.step),
    ]
    if not moved:
        both = times.forward + times.input_grad
        bounds.append(before_forward + spread((both + weights).times(num) + times.step))
        bounds.append(before_forward + spread(both.times(num)) + (np.cumsum(back) - back) + end)
    return float(np.max(bounds))


def _way_chain(times: UnitTimes, moved: bool) -> float:
    num, found = times.num_microbatches, ways(times)
    ahead, back = times.forward.whole.T, times.input_grad.whole.T
    weights, step = times.weight_grad.whole.T, times.step.whole.T
    bounds = [
        found.forward_before + num * ahead + found.forward_after,
        found.backward_before + num * back + found.backward_after,
        found.backward_before + num * (back + weights) + step,
    ]
    if not moved:
        bounds.append(found.forward_before + num * (ahead + back + weights) + step)
        bounds.append(found.forward_before + num * (ahead + back) + found.backward_after)
    return float(np.max([bound.min(axis=1) for bound in bounds]))
