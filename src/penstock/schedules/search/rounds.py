"""Rounds: the heuristic of zero-bubble schedules for straight pipelines, with one stage on each device.

After a warm-up, every round runs at most one F and one I of each stage, with W in between.

- Warm-up: as many F as fit in front of the first I of a stage, and as memory allows. Every stage is ahead of the next
  one, so that the forwards of a round do not wait for each other.
- W runs where a stage would wait for as long as it takes, where a shorter wait would make the bubble of this stage the
  largest of all, and where a forward needs the memory.

Three choices give eight variants: whether the last warm-up F may delay the first I; whether a stage that is two F ahead
of the next one skips an F that would delay an I; and whether a bubble is compared with those of all stages, or only
with those of the stages before.

Reference: Qi et al., Zero Bubble Pipeline Parallelism, 2023, section 3.1. Added here: unequal stages and links, and
memory in micro-batches for every stage. Cost: O(jobs) for each variant.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import ACTIVATION, GRADIENT, Costs
from penstock.program import SPLIT_KINDS, Program, program_from_arrays

KINDS = np.array([SPLIT_KINDS[0], SPLIT_KINDS[2], SPLIT_KINDS[3]], dtype=np.int8)
"""F, I and W, as the kernel numbers them."""


def is_straight(costs: Costs) -> bool:
    """Whether every stage has a device of its own, and no backward is remote or recomputes."""
    return (
        costs.num_replicas == costs.plan.num_stages
        and len(set(costs.forward_device.tolist())) == costs.num_replicas
        and bool((costs.forward_device == costs.backward_device).all())
        and not costs.recompute.any()
    )


def rounds(costs: Costs, room: Floats) -> Iterator[Program]:
    """The orders of all variants for a straight pipeline.

    Args:
        costs: The priced plan.
        room: Over devices: bytes that each may keep; one micro-batch always passes.
    """
    from penstock.schedules.search.rounds_kernel import Stages, run_rounds

    num, size = costs.num_microbatches, costs.plan.num_stages
    kept = np.maximum(costs.kept_bytes * costs.share, 1e-9)
    most_kept = np.clip(np.floor(room[costs.forward_device] / kept + 1e-9), 1, num).astype(np.int64)
    stages = Stages(
        costs.forward_s,
        costs.input_grad_s,
        costs.weight_grad_s,
        _arrivals(costs, ACTIVATION),
        _arrivals(costs, GRADIENT),
        most_kept,
    )
    by_device = np.argsort(costs.forward_device)
    counts: Ints = np.zeros(costs.num_devices, dtype=np.int64)
    counts[costs.forward_device] = 3 * num
    names = [device.name for device in costs.cluster.devices]
    for choices in product((False, True), repeat=3):
        kind, microbatch = run_rounds(stages, num, *choices)
        yield program_from_arrays(
            costs.plan,
            names,
            counts,
            KINDS[kind[by_device].ravel()],
            np.repeat(np.arange(size)[by_device], 3 * num),
            microbatch[by_device].ravel(),
        )


def _arrivals(costs: Costs, what: int) -> Floats:
    """Over stages: seconds of a message that arrives."""
    chosen = costs.flows.what == what
    seconds = np.zeros(costs.num_replicas)
    seconds[costs.flows.target_replica[chosen]] = costs.delay_s[chosen]
    return seconds
