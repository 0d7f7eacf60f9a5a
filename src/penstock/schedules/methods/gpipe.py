"""GPipe: all forwards, then all backwards.

    device 0   F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
    device 1   .  F0 F1 F2 F3 .  .  B0 B1 B2 B3
    device 2   .  .  F0 F1 F2 F3 B0 B1 B2 B3            (F and B drawn equally long)

It keeps every micro-batch until the backwards begin. Several stages on a device run one after the other. With
equal stages the iteration takes (M + S - 1) (F + B). Cost: O(jobs log jobs).

Reference: Huang et al., GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism, 2019.
"""

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.ordering import order_by_clock


def gpipe(costs: Costs) -> Program:
    """All forwards, then all backwards."""
    num, num_stages = costs.num_microbatches, costs.plan.num_stages

    def forward(stage: Ints, microbatch: Ints) -> Ints:
        return stage * num + microbatch

    def backward(stage: Ints, microbatch: Ints) -> Ints:
        return (2 * num_stages - 1 - stage) * num + microbatch

    return order_by_clock(costs, forward, backward, split=costs.plan.split_backward)
