"""V-Min: a V that keeps about a third as much as 1F1B.

    device 0   F0 .  .  .  .  f0 F1 i0 w0 .  .  f1 F2 I0 i1 W0 w1 f2 F3 I1 i2 W1 w2 f3 .  I2 i3 W2 w3 .  .  I3 W3
    device 1   .  F0 .  .  f0 .  .  F1 i0 w0 f1 .  I0 F2 W0 i1 f2 w1 I1 F3 W1 i2 f3 w2 I2 W2 .  i3 w3 .  I3 W3
    device 2   .  .  F0 f0 .  .  .  .  F1 f1 i0 I0 w0 W0 F2 f2 i1 I1 w1 W1 F3 f3 i2 I2 w2 W2 .  .  i3 I3 w3 W3
               (3 devices, capitals for the stages on the way down, small letters for those on the way up)

With equal stages no device keeps more than 2 floor((p + 1) / 3) + 2 (stage, micro-batch) pairs, where 1F1B and ZB-V
keep 2 p. With F = I = W the devices wait about two thirds as long as in 1F1B. The order is that of a building block
(v_block.py) in which every pass follows the one before it at once. For a number of devices that is a multiple of
three, I of the last stage is three slots after its F, so that no two passes of a device collide. Where costs differ,
the order of F and I stays, and weight gradients fill the waits, or run when the device keeps its most. As passes
follow each other so closely, unequal costs delay it more than V-Half. For other maps the order is that of the V over
as many stages.

Reference: Qi et al., Pipeline Parallelism with Controllable Memory, 2024. The closed form of the slots is ours.
"""

from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.ordering import VBlock


def v_min(costs: Costs) -> Program:
    """The order of the block with a third of 1F1B's memory."""
    return min_block(-(-costs.plan.num_stages // 2)).order(costs)


def min_block(num_devices: int) -> VBlock:
    """The block for a V over some devices."""
    turn = 1 if num_devices % 3 else 3
    return VBlock(num_devices, down=1, up=1, turn=turn, turn_back=1, most_kept=2 * ((num_devices + 1) // 3) + 2)
