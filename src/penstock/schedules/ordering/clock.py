"""Orders from virtual clocks: a schedule gives every pass a virtual time, and each device follows that order.

If the virtual times rise along all dependencies (F after the previous stage's F, a backward after the next stage's
backward and its own F), then so do the orders of all devices, for any map of stages to devices: the virtual times are
themselves a run without a deadlock. So such schedules work for any map and any number of micro-batches.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np

from penstock.arrays import Ints
from penstock.plan.pricing import Costs
from penstock.program import Kind, Program, program_from_arrays

Clock = Callable[[Ints, Ints], Ints]
"""(stages, micro-batches) -> virtual times."""


def with_split(costs: Costs, split: bool) -> Costs:
    """The same costs with every backward fused or split, regardless of the plan."""
    return replace(costs, plan=msgspec.structs.replace(costs.plan, split_backward=split))


def order_by_clock(costs: Costs, forward: Clock, backward: Clock, *, split: bool) -> Program:
    """The program in which every device works in the order of the virtual times.

    At equal times backwards come first, then later stages. A recompute directly precedes its backward. The weight
    gradient of a split backward directly follows its input gradient.
    """
    num = costs.num_microbatches
    replica = np.repeat(np.arange(costs.num_replicas), num)
    microbatch = np.tile(np.arange(num), costs.num_replicas)
    stage = costs.replica_stage[replica]
    device = np.concatenate([costs.forward_device[replica], costs.backward_device[replica]])
    time = np.concatenate([forward(stage, microbatch), backward(stage, microbatch)])
    is_forward = np.concatenate([np.ones(len(replica), bool), np.zeros(len(replica), bool)])
    stage, microbatch = np.tile(stage, 2), np.tile(microbatch, 2)
    order = np.lexsort((microbatch, -stage, is_forward, time, device))
    device, stage, microbatch, is_forward = (values[order] for values in (device, stage, microbatch, is_forward))
    again = ~is_forward & costs.recompute[stage]
    parts = 1 + again.astype(np.int64) + (~is_forward & split)
    begin = np.concatenate([[0], np.cumsum(parts)])
    kind = np.full(int(begin[-1]), Kind.F, dtype=np.int8)
    kind[begin[:-1][again]] = Kind.R
    kind[begin[1:][~is_forward] - 1] = Kind.W if split else Kind.B
    if split:
        kind[begin[1:][~is_forward] - 2] = Kind.I
    counts = np.bincount(device, weights=parts, minlength=costs.num_devices).astype(np.int64)
    names = [item.name for item in costs.cluster.devices]
    return program_from_arrays(costs.plan, names, counts, kind, np.repeat(stage, parts), np.repeat(microbatch, parts))
