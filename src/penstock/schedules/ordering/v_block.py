"""Building blocks of V-shaped pipelines: one micro-batch's passes in slots, repeated every six slots.

A device holds one stage on the way down and one on the way up, so it runs six passes for each micro-batch. A block puts
two F and two I of every device d into slots

    F down    down d                     I up      I0 + down d      (the stage on the way up is the first to go back)
    F up      F0 - up d                  I down    I1 - up d

with F0, I0 and I1 so that they follow each other: forwards turn around on the last device at once, input gradients
start on device 0 `turn` slots after the last forward and turn around on the last device after `turn_back` slots. If the
four slots differ modulo six on every device, blocks can start every six slots without a collision, and two slots remain
for the weight gradients. A micro-batch is kept from F to W. Over both stages of a device that takes about
2 (p - 1) (down + up) slots, the same on every device; so a device keeps about (down + up) / 6 of what 1F1B keeps.

Idea: Qi et al., Pipeline Parallelism with Controllable Memory, 2024.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.ordering.clock import order_by_clock, with_split
from penstock.schedules.ordering.fused_backward import join_first
from penstock.schedules.ordering.weight_filling import fill_weights

PERIOD = 6
"""Slots between micro-batches: a device has two F, two I and two W."""


@dataclass(frozen=True)
class VBlock:
    """The slots of a block.

    Attributes:
        num_devices: Devices of the V; stages d and 2 p - 1 - d are those of device d.
        down: Slots by which F on the way down, and I of the way up, come later on the next device.
        up: Slots by which F on the way up, and I of the way down, come later on the device before.
        turn: Slots from F to I of the last stage.
        turn_back: Slots from I of the way up to I of the way down on the last device.
        most_kept: The number of (stage, micro-batch) pairs that a device keeps.
    """

    num_devices: int
    down: int
    up: int
    turn: int
    turn_back: int
    most_kept: int

    def forward(self, stage: Ints, microbatch: Ints) -> Ints:
        """The slots of forwards."""
        device = np.minimum(stage, 2 * self.num_devices - 1 - stage)
        slots = np.where(stage < self.num_devices, self.down * device, self._last_forward - self.up * device)
        return np.asarray(slots + PERIOD * microbatch)

    def backward(self, stage: Ints, microbatch: Ints) -> Ints:
        """The slots of input gradients."""
        device = np.minimum(stage, 2 * self.num_devices - 1 - stage)
        first = self._last_forward + self.turn
        last = first + (self.down + self.up) * (self.num_devices - 1) + self.turn_back
        slots = np.where(stage < self.num_devices, last - self.up * device, first + self.down * device)
        return np.asarray(slots + PERIOD * microbatch)

    def order(self, costs: Costs) -> Program:
        """The program in the order of the slots, filled up with weight gradients at real times."""
        track = order_by_clock(with_split(costs, False), self.forward, self.backward, split=False)
        return join_first(fill_weights(track, costs, self.most_kept), costs).near

    @property
    def _last_forward(self) -> int:
        return (self.down + self.up) * (self.num_devices - 1) + 1
