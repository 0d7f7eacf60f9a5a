"""The memory of copies, as a part of a plan's proof."""

import os
from pathlib import Path

from penstock.errors import MemoryLimitError
from penstock.simulate import Evaluation
from penstock.units import show_bytes

NUM_COPIES = 3
"""Of each part of the state: two slots, and one more of the next ranks while they take over."""
HOST_KIND = "cpu-"
"""Devices of these kinds compute in the memory of their host, where copies are."""


def copy_bytes(predicted: Evaluation) -> float:
    """Bytes of one copy of the state of all stages: weights and optimizer state. Replicas are counted several times."""
    costs = predicted.costs
    return float(costs.weight_bytes.sum() + costs.optimizer_bytes.sum())


def check_copy_memory(predicted: Evaluation, folder: Path | None = None) -> None:
    """Check that copies fit beside what the proof of a plan counts.

    Args:
        predicted: The plan.
        folder: Where the copies will be. None: only the limits of the cluster are checked.

    Raises:
        MemoryLimitError: They do not fit.
    """
    needed = NUM_COPIES * copy_bytes(predicted)
    hint = "Train without --elastic, with a smaller model, or on more hosts."
    if folder is not None:
        status = os.statvfs(folder)
        free = status.f_bavail * status.f_frsize
        if needed > free:
            what = f"copies of the state need {show_bytes(needed)} of memory, and {show_bytes(free)} is free"
            raise MemoryLimitError(what, where=str(folder), hint=hint)
    costs, peaks = predicted.costs, predicted.proof.peak_bytes
    own = [number for number, device in enumerate(costs.cluster.devices) if device.kind.startswith(HOST_KIND)]
    limit = float(costs.memory_limit[own].sum()) if own else float("inf")
    total = float(peaks[own].sum()) + needed
    if total > limit:
        what = f"training and copies of the state need {show_bytes(total)}, and the host has {show_bytes(limit)}"
        raise MemoryLimitError(what, hint=hint)
