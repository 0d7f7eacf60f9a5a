"""Where a plan sums in another order than a single process does, so that the last bits may differ."""

import numpy as np

from penstock.plan.pricing import Costs
from penstock.printable_text import escape_text
from penstock.program import Kind, Program


def reordered_sums(costs: Costs, program: Program) -> list[str]:
    """Describe every sum whose order differs from that of a single process.

    Args:
        costs: The priced plan.
        program: The program that runs.

    Returns:
        One description for each cause. Empty where every sum, and so every bit, is the same as in a single process.
    """
    reasons = []
    for number, stage in enumerate(costs.plan.stages):
        if stage.num_replicas > 1:
            reasons.append(
                f"stage {number} has {stage.num_replicas} replicas: each sums the gradients of its rows, "
                "then an all-reduce adds these sums"
            )
    for stages in costs.tied_stages:
        names = ", ".join(map(str, stages))
        reasons.append(
            f"stages {names} share parameters: each sums its gradients over the micro-batches, "
            "then an all-reduce adds these sums"
        )
    for device, number in _out_of_order(program):
        reasons.append(f"{escape_text(device)} sums the gradients of stage {number} in a different micro-batch order")
    return reasons


def _out_of_order(program: Program) -> list[tuple[str, int]]:
    """Devices and stages that do not sum their gradients or losses from the first micro-batch to the last."""
    unordered = set()
    for kinds in ((Kind.F,), (Kind.W, Kind.B)):
        last: dict[tuple[int, int], int] = {}
        for action in np.flatnonzero(np.isin(program.kind, kinds)).tolist():
            key = int(program.device_of[action]), int(program.stage[action])
            if int(program.microbatch[action]) < last.get(key, -1):
                unordered.add(key)
            last[key] = int(program.microbatch[action])
    return [(program.devices[device], stage) for device, stage in sorted(unordered)]
