"""Zero-bubble V: each device holds one stage on the way down and one on the way up; device 0 has both ends.

    device 0   F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 I2 w3 I3 W2 W3
    device 1   .  F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 I2 i3 I3 w2 W2 w3 W3
               (2 devices, capitals for stages 0 and 1, small letters for 3 and 2)

With equal stages, F = I = W, and M >= 2 p - 1, no device waits between its first and its last action, and none keeps
more than 2 p (stage, micro-batch) pairs: as much memory as 1F1B. The virtual times are the slots of that ideal run,
`_V`; where costs differ, the order of F and I stays and weight gradients fill the waits (weight_filling.py). For other
maps, and fewer micro-batches, the order is that of the V over as many stages and 2 p - 1 micro-batches, without the
passes that do not exist.

Reference: Qi et al., Pipeline Parallelism with Controllable Memory, 2024. The formula of the slots is added here.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.ordering import fill_weights, join_first, order_by_clock, with_split


def zb_v(costs: Costs) -> Program:
    """The V's order of forwards and input gradients, filled up with weight gradients."""
    num_devices = -(-costs.plan.num_stages // 2)
    slots = _V(num_devices, max(2 * num_devices - 1, costs.num_microbatches))
    track = order_by_clock(with_split(costs, False), slots.forward, slots.backward, split=False)
    return join_first(fill_weights(track, costs, 2 * num_devices), costs).near


@dataclass(frozen=True)
class _V:
    """When each job of the ideal V starts. Stages d and 2 p - 1 - d are the first and second of device d.

    A device's order has six parts: firsts only; firsts and seconds in turn; seconds with their backwards; full rounds
    of six (F of the first, I W, then F I W of the second); rounds without a first forward left; and the remaining Is.
    """

    num_devices: int
    num_microbatches: int

    def forward(self, stage: Ints, microbatch: Ints) -> Ints:
        p = self.num_devices
        device = np.minimum(stage, 2 * p - 1 - stage)
        alone = 2 * (p - device) - 1
        first = np.where(
            microbatch < alone,
            microbatch,
            np.where(
                microbatch < alone + device,
                2 * microbatch - alone + 1,
                self._round(device, microbatch - (2 * p - device - 1)),
            ),
        )
        second = np.where(
            microbatch < device,
            alone + 2 * microbatch,
            np.where(
                microbatch < p, 2 * p - 1 + 3 * (microbatch - device), self._second_forward(device, microbatch - p)
            ),
        )
        return device + np.where(stage < p, first, second)

    def backward(self, stage: Ints, microbatch: Ints) -> Ints:
        p, num = self.num_devices, self.num_microbatches
        device = np.minimum(stage, 2 * p - 1 - stage)
        closing = self._round(device, np.full_like(device, num - p))
        left = microbatch - (num - p)
        first = np.where(left < 0, self._first_backward(device, microbatch), closing + 2 * left)
        early = microbatch < p - device
        late = microbatch - (num - device)
        second = np.where(
            early,
            2 * p + 3 * microbatch,
            np.where(late < 0, self._second_forward(device, microbatch - (p - device)) + 1, closing + 2 * late + 1),
        )
        return device + np.where(stage < p, first, second)

    def _round(self, device: Ints, number: Ints) -> Ints:
        """The slot in which a round begins; the first rounds have six slots, those without a first forward five."""
        p = self.num_devices
        full = self.num_microbatches - (2 * p - device - 1)
        begin = 2 * p - 1 + 3 * (p - device)
        return np.asarray(begin + 5 * number + np.minimum(number, full))

    def _is_full(self, device: Ints, number: Ints) -> Ints:
        return (number < self.num_microbatches - (2 * self.num_devices - device - 1)).astype(np.int64)

    def _first_backward(self, device: Ints, number: Ints) -> Ints:
        return self._round(device, number) + self._is_full(device, number)

    def _second_forward(self, device: Ints, number: Ints) -> Ints:
        return self._round(device, number) + self._is_full(device, number) + 2
