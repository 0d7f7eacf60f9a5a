"""Where a plan adds numbers up in another order than one process does, so that last bits may differ."""

import numpy as np

from penstock.plan.pricing import Costs
from penstock.program import Kind, Program
from penstock.report.names import shown_name


def changed_sums(costs: Costs, program: Program) -> list[str]:
    """Why sums are in another order, in words; empty where every sum is as in one process, and so every bit."""
    found = []
    for number, stage in enumerate(costs.plan.stages):
        if stage.num_replicas > 1:
            found.append(
                f"stage {number} is on {stage.num_replicas} devices: each sums the gradients of its rows, "
                "then these sums are added"
            )
    for stages in costs.tied_stages:
        names = ", ".join(map(str, stages))
        found.append(
            f"stages {names} share parameters: each sums its gradients over the micro-batches, then these are added"
        )
    for device, number in _out_of_order(program):
        found.append(f"{shown_name(device)} adds up stage {number} in another order of micro-batches")
    return found


def _out_of_order(program: Program) -> list[tuple[str, int]]:
    """Devices and stages whose gradients or losses are not added up from the first micro-batch to the last."""
    found = {}
    for kinds in ((Kind.F,), (Kind.W, Kind.B)):
        last: dict[tuple[int, int], int] = {}
        for at in np.flatnonzero(np.isin(program.kind, kinds)).tolist():
            key = int(program.device_of[at]), int(program.stage[at])
            if int(program.microbatch[at]) < last.get(key, -1):
                found[key] = True
            last[key] = int(program.microbatch[at])
    return [(program.devices[device], stage) for device, stage in sorted(found)]
