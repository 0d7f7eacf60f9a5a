"""How much slower than the cluster time must pass here, so that this machine's own speed stays out of the picture."""

import math
import os

import numpy as np

from penstock.simulate import Evaluation

BYTE_S = 1.2e-9
"""Processor seconds for a byte to go from one rank to another through the kernel: both ends, and the shaper."""
ACTION_S = 0.6e-3
"""Processor seconds that the runtime takes for an action."""
MOST_BUSY = 0.2
"""So much of the machine may all that take, on average over an iteration."""


def work_s(found: Evaluation) -> float:
    """Processor seconds that an iteration takes here, whatever its pace."""
    moved = float(found.proof.wiring.num_bytes[: _num_messages(found)].sum())
    moved += sum(item.ring.sent_bytes * len(item.ring.devices) for item in found.costs.reductions)
    return moved * BYTE_S + found.program.num_actions * ACTION_S


def slow_down_for(found: Evaluation) -> float:
    """The least that keeps this machine as idle as it should be, in two digits; at least 1."""
    room_s = found.timeline.iteration_s * MOST_BUSY * (os.cpu_count() or 1)
    wanted = work_s(found) / room_s if room_s > 0 else 1.0
    if wanted <= 1:
        return 1.0
    unit = 10 ** (math.floor(math.log10(wanted)) - 1)
    return float(round(math.ceil(wanted / unit) * unit, 6))


def _num_messages(found: Evaluation) -> int:
    return int(np.count_nonzero(found.proof.wiring.receive >= 0))
