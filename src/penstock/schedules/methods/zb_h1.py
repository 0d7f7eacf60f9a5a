"""Zero-bubble H1: 1F1B with split backwards, and weight gradients where a device would wait.

    device 0   F0 F1 F2 .  .  I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4
    device 1   .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4
    device 2   .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4

No device keeps more than S micro-batches, as the first in 1F1B. With equal stages and M >= S the iteration takes
M (F + I + W) + (S - 1) (F + I - W) where I = W = F: a third of 1F1B's bubble. Where devices hold several stages,
each may keep as much as the fullest one does in 1F1B. Where splitting has a cost, adjacent I and W of the first
stage, as here on device 0, are fused: no device waits for that I.

Reference: Qi et al., Zero Bubble Pipeline Parallelism, 2023. The filling is added here (weight_filling.py).
"""

import numpy as np

from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.schedules.methods.one_f_one_b import one_f_one_b
from penstock.schedules.ordering import fill_weights, join_first, with_split


def zb_h1(costs: Costs) -> Program:
    """1F1B's order of forwards and input gradients, filled up with weight gradients."""
    in_1f1b = np.minimum(costs.plan.num_stages - costs.replica_stage, costs.num_microbatches)
    most_kept = int(np.bincount(costs.backward_device, weights=in_1f1b).max())
    return join_first(fill_weights(one_f_one_b(with_split(costs, False)), costs, most_kept), costs).near
