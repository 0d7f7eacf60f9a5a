"""The score of an order: lowered and executed, without the proof.

Lowered programs pass the proof, and the chosen program is proved in the end. (Devices that block at their messages can
deadlock: such an order is refused.) Messages are brought into their final
order only if memory depends on it: that changes no times, and needs less memory, unless a sender has to hold a tensor
for its receiver.
"""

import math
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.plan.pricing import Costs
from penstock.program import Program, durations, find_dependencies, find_jobs
from penstock.program.engine import execute
from penstock.program.lowering import holds_sends, order_by_ends, place_messages
from penstock.program.proof import meets_restrictions, memory_use


class Score(NamedTuple):
    """Bytes over memory limits, then seconds: smaller is better, and fitting comes first.

    Both are infinite for an order that training refuses.
    """

    over_bytes: float
    seconds: float

    @property
    def is_refused(self) -> bool:
        """Whether training refuses the order."""
        return math.isinf(self.over_bytes)


REFUSED = Score(math.inf, math.inf)
"""The score of an order that training refuses."""


def score_program(program: Program, costs: Costs) -> Score:
    """The score of one order."""
    lowered = place_messages(program, costs)
    jobs = find_jobs(lowered, costs)
    dependencies = find_dependencies(lowered, costs, jobs)
    if not meets_restrictions(lowered, costs, dependencies):
        return REFUSED
    run = execute(lowered, dependencies, costs, durations(lowered, costs, jobs.replica))
    if not costs.messages.is_overlapped and (run.counter < lowered.offsets[1:]).any():
        return REFUSED
    peak = memory_use(lowered, costs, jobs).peak(lowered, costs)
    if costs.messages.is_overlapped and _depends_on_messages(peak, costs, holds_sends(dependencies, run.end)):
        ordered = order_by_ends(lowered, costs, dependencies, run.end)
        peak = memory_use(ordered, costs).peak(ordered, costs)
    return Score(float(costs.over_bytes(peak).max(initial=0.0)), run.seconds)


def _depends_on_messages(peak: Floats, costs: Costs, holds: bool) -> bool:
    """Whether it can depend on the order of messages if a program fits that needs this much without it.

    The order can free all receive buffers, and hold all sent tensors.
    """
    flows, num = costs.flows, costs.num_microbatches
    received, sent = (
        num * np.bincount(devices, flows.num_bytes, minlength=costs.num_devices)
        for devices in (flows.target, flows.source)
    )
    room = costs.memory_limit - peak
    if (room < 0.0).any():
        return not (room + received < 0.0).any()
    return holds and bool((room < sent).any())
