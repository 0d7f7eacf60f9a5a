"""Lower bounds from the chain of one micro-batch, with all M micro-batches through its slowest job.

The chain of a micro-batch is F of every layer in order, I of every layer in reverse order, then W and the step of
layer 0. A plan runs whole stages at a time and adds transfers and recomputation, which only lengthen the chain.

*All plans.* Follow one row of a micro-batch. It passes one replica of every group. A replica with share x takes
base + x slope for layer u, and cannot start this part of the chain before the part in front of it has ended. So the
chain of every row ends within the iteration, and therefore so does the average over the rows. A replica with share x
has x of all rows, so the average over rows of layer u's part is sum x (base + x slope) over its group, which is at
least the minimum of this sum over all shares that sum to 1 (`least_spread`). The same replica also runs this job for
the same rows of all other micro-batches, one after another: the first after the chain in front of the job, the last
followed by the chain behind it. So the iteration holds this job M times and every other job of the chain once; this
holds for every job of the chain. I and W of a layer are on one device (with F, if backwards are not remote), so their
sum is one such job too, without the chain behind it. With a sharded optimizer, the step of one of r replicas takes
1/r of its time, and r is at most the number of devices D: the chain has 1/D of the step.

*Without replication* every job is on one device, and a change of device costs a transfer. Dynamic programming finds the
shortest paths through all devices in front of every job and behind it.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.planners.bounds.unit_seconds import Lines, UnitTimes

HALVINGS = 60
MAX_DEVICES = 128
"""With more devices the bound omits transfers. It is weaker then, and still valid."""


def least_spread(lines: Lines) -> Floats:
    """For each layer, minimize sum x (base + x per_share) over shares x of the devices that sum to 1.

    By duality: for any m, the sum is at least m - sum max(0, m - base)^2 / (4 per_share), from each device's minimum of
    x (base + x per_share) - m x, provided that m is at most the base wherever per_share is 0. Bisection finds the best
    m.
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
class ShortestPaths:
    """Shortest paths of one micro-batch through the devices, in seconds. Arrays are [unit, device]."""

    forward_before: Floats
    """From the start of the iteration to the start of F on this device."""
    forward_after: Floats
    """From the end of F on this device to the end of the chain."""
    backward_before: Floats
    """From the start of the iteration to the start of I on this device."""
    backward_after: Floats
    """From the end of I on this device to the end of the chain."""
    end: Floats
    """[device]: W and step of layer 0."""


def turn_bytes(times: UnitTimes) -> float:
    """Bytes from the last forward to the first backward: the last stage's saved tensors, or its input."""
    return float(min(times.saved_bytes[-1], times.input_bytes.min()))


def shortest_paths(times: UnitTimes) -> ShortestPaths:
    """Compute the shortest paths before and behind every job of the chain."""
    num_units, num_devices = times.num_units, times.cluster.num_devices
    forward, input_grad = times.forward.whole.T, times.input_grad.whole.T
    end = times.weight_grad.whole[:, 0] + times.step.whole[:, 0]

    def hop(num_bytes: float) -> Floats:
        return times.hop(num_bytes) if num_devices <= MAX_DEVICES else np.zeros((num_devices, num_devices))

    crossing = [hop(float(size)) for size in times.cut_bytes[:-1]]
    returning = [hop(float(size)) for size in times.grad_bytes[:-1]]
    turn = hop(turn_bytes(times))
    forward_before, forward_after, backward_before, backward_after = np.zeros((4, num_units, num_devices))
    for unit in range(1, num_units):
        done = forward_before[unit - 1] + forward[unit - 1]
        forward_before[unit] = (done[:, None] + crossing[unit - 1]).min(axis=0)
    backward_before[-1] = ((forward_before[-1] + forward[-1])[:, None] + turn).min(axis=0)
    for unit in reversed(range(num_units - 1)):
        done = backward_before[unit + 1] + input_grad[unit + 1]
        backward_before[unit] = (done[:, None] + returning[unit]).min(axis=0)
    backward_after[0] = end
    for unit in range(1, num_units):
        backward_after[unit] = (returning[unit - 1] + (input_grad[unit - 1] + backward_after[unit - 1])[None, :]).min(
            axis=1
        )
    forward_after[-1] = (turn + (input_grad[-1] + backward_after[-1])[None, :]).min(axis=1)
    for unit in reversed(range(num_units - 1)):
        forward_after[unit] = (crossing[unit] + (forward[unit + 1] + forward_after[unit + 1])[None, :]).min(axis=1)
    return ShortestPaths(forward_before, forward_after, backward_before, backward_after, end)


def chain_bound(times: UnitTimes, *, replication: bool, remote_backward: bool) -> float:
    """The largest bound over all jobs of the chain."""
    return (
        _spread_chain(times, remote_backward)
        if replication
        else max(_spread_chain(times, remote_backward), _path_chain(times, remote_backward))
    )


def _spread_chain(times: UnitTimes, remote_backward: bool) -> float:
    num = times.num_microbatches
    forward, input_grad = least_spread(times.forward), least_spread(times.input_grad)
    weights = times.weight_grad
    end = float(least_spread(weights + times.step)[0])
    once = float(forward.sum() + input_grad.sum()) + end
    before_forward = np.cumsum(forward) - forward
    before_backward = forward.sum() + input_grad.sum() - np.cumsum(input_grad)
    bounds = [
        once + (num - 1) * forward,
        once + (num - 1) * input_grad,
        before_backward + least_spread((times.input_grad + weights).times(num) + times.step),
    ]
    if not remote_backward:
        both = times.forward + times.input_grad
        bounds.append(before_forward + least_spread((both + weights).times(num) + times.step))
        bounds.append(before_forward + least_spread(both.times(num)) + (np.cumsum(input_grad) - input_grad) + end)
    return float(np.max(bounds))


def _path_chain(times: UnitTimes, remote_backward: bool) -> float:
    num, paths = times.num_microbatches, shortest_paths(times)
    forward, input_grad = times.forward.whole.T, times.input_grad.whole.T
    weights, step = times.weight_grad.whole.T, times.step.whole.T
    bounds = [
        paths.forward_before + num * forward + paths.forward_after,
        paths.backward_before + num * input_grad + paths.backward_after,
        paths.backward_before + num * (input_grad + weights) + step,
    ]
    if not remote_backward:
        bounds.append(paths.forward_before + num * (forward + input_grad + weights) + step)
        bounds.append(paths.forward_before + num * (forward + input_grad) + paths.backward_after)
    return float(np.max([bound.min(axis=1) for bound in bounds]))
