"""1F1B: after a warm-up, every stage alternates one forward and one backward.

    device 0   F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
    device 1   .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
    device 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3            (F and B drawn equally long)

Stage s of S keeps at most min(S - s, M) micro-batches, and with equal stages the iteration still takes
(M + S - 1) (F + B). The virtual time is that of the picture: F(s, m) at s + m in the warm-up and at s + 2 m after it,
B(s, m) at 2 S - 1 - s + 2 m. A device with several stages follows the same order.

Reference: Narayanan et al., PipeDream, 2019; with a flush as in Fan et al., DAPPLE, 2021.
"""

import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.ordering import order_by_clock


def one_f_one_b(costs: Costs) -> Program:
    """Alternate one forward and one backward."""
    num_stages = costs.plan.num_stages

    def forward(stage: Ints, microbatch: Ints) -> Ints:
        warm_up = microbatch < num_stages - stage
        return stage + np.where(warm_up, microbatch, 2 * microbatch)

    def backward(stage: Ints, microbatch: Ints) -> Ints:
        return 2 * num_stages - 1 - stage + 2 * microbatch

    return order_by_clock(costs, forward, backward, split=costs.plan.split_backward)
