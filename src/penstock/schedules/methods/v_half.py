"""V-Half: a V that keeps about half as much as 1F1B.

    device 0   F0 F1 .  .  .  f0 i0 F2 w0 f1 i1 w1 I0 F3 W0 f2 i2 w2 I1 W1 .  f3 i3 I2 w3 W2 .  I3 W3
    device 1   .  F0 .  .  f0 F1 .  i0 f1 w0 F2 I0 i1 W0 f2 w1 F3 I1 i2 W1 f3 w2 I2 i3 W2 w3 I3 W3
    device 2   .  .  F0 f0 .  .  F1 f1 i0 I0 w0 F2 W0 f2 i1 I1 w1 F3 W1 f3 i2 I2 w2 W2 i3 I3 w3 W3
               (3 devices, capitals for the stages on the way down, small letters for those on the way up)

With equal stages no device keeps more than 2 floor(p / 2) + 2 (stage, micro-batch) pairs, where 1F1B and ZB-V keep 2
p. With F = I = W the devices wait about half as long as in 1F1B. The order is that of a building block (v_block.py)
in which F passes down in steps of one slot and up in steps of two, and I moves back in the same steps. For an even
number of devices, I of the last stage is four slots after its F, so that no two passes of a device collide. Where
costs differ, the order of F and I stays, and weight gradients fill the waits, or run when the device keeps its most.
For other maps the order is that of the V over as many stages.

Reference: Qi et al., Pipeline Parallelism with Controllable Memory, 2024. The closed form of the slots is ours.
"""

from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.ordering import VBlock


def v_half(costs: Costs) -> Program:
    """The order of the block with half of 1F1B's memory."""
    return half_block(-(-costs.plan.num_stages // 2)).order(costs)


def half_block(num_devices: int) -> VBlock:
    """The block for a V over some devices."""
    turn = 1 if num_devices % 2 else 4
    return VBlock(num_devices, down=1, up=2, turn=turn, turn_back=2, most_kept=2 * (num_devices // 2) + 2)
