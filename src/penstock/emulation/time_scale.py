"""The time scale of an emulation: how much slower than the cluster it must run to hide this machine's own speed."""

import math
import os

import numpy as np

from penstock.simulate import Evaluation

BYTE_S = 1.2e-9
"""Processor seconds for each byte between ranks: both ends, the kernel and the shaper."""
ACTION_S = 0.6e-3
"""Processor seconds of the runtime for each action."""
MAX_BUSY = 0.2
"""Largest fraction of the machine that both may use, on average over an iteration."""


def estimate_work_s(evaluation: Evaluation) -> float:
    """Return the processor seconds of this machine for an iteration, at any time scale."""
    moved = float(evaluation.proof.dependencies.num_bytes[: _num_messages(evaluation)].sum())
    moved += sum(item.ring.sent_bytes * len(item.ring.devices) for item in evaluation.costs.collectives)
    return moved * BYTE_S + evaluation.program.num_actions * ACTION_S


def choose_slow_down(evaluation: Evaluation) -> float:
    """Return the smallest time scale that keeps this machine idle enough, rounded up to two digits; at least 1."""
    room_s = evaluation.timeline.iteration_s * MAX_BUSY * (os.cpu_count() or 1)
    factor = estimate_work_s(evaluation) / room_s if room_s > 0 else 1.0
    if factor <= 1:
        return 1.0
    unit = 10 ** (math.floor(math.log10(factor)) - 1)
    return float(round(math.ceil(factor / unit) * unit, 6))


def _num_messages(evaluation: Evaluation) -> int:
    return int(np.count_nonzero(evaluation.proof.dependencies.receive >= 0))
