"""The three phases of an iteration: warm-up, steady phase and drain."""

from typing import NamedTuple

import numpy as np

from penstock.program import is_pass
from penstock.timeline import Timeline


class Phases(NamedTuple):
    """The start of the steady phase and the start of the drain. The warm-up begins at 0."""

    steady_s: float
    """When the last of the used devices starts its first action."""
    drain_s: float
    """When the first of them ends its last forward or backward; never before `steady_s`."""


def phases(timeline: Timeline) -> Phases:
    """The phases of a timeline. They are all empty where nothing computes."""
    program = timeline.program
    passes = np.flatnonzero(is_pass(program.kind))
    if not len(passes):
        return Phases(0.0, 0.0)
    device = program.device_of[passes]
    begins = np.full(len(program.devices), np.inf)
    ends = np.full(len(program.devices), -np.inf)
    np.minimum.at(begins, device, timeline.start_s[passes])
    np.maximum.at(ends, device, timeline.end_s[passes])
    used = np.isfinite(begins)
    steady = float(begins[used].max())
    return Phases(steady, max(steady, float(ends[used].min())))
