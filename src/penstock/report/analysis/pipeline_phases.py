"""The three phases of an iteration: the pipeline fills, runs, and drains."""

from typing import NamedTuple

import numpy as np

from penstock.program import Kind
from penstock.timeline import Timeline


class Phases(NamedTuple):
    """When the steady phase begins and ends. Before it is the warm-up, after it the drain."""

    steady_s: float
    """When the last of the used devices has begun its first job."""
    drain_s: float
    """When the first of them is done with its last forward or backward; never before `steady_s`."""


def phases(timeline: Timeline) -> Phases:
    """The phases of a timeline; one that computes nothing has all of them empty."""
    program = timeline.program
    jobs = np.flatnonzero(program.kind < Kind.STEP)
    if not len(jobs):
        return Phases(0.0, 0.0)
    device = program.device_of[jobs]
    begins = np.full(len(program.devices), np.inf)
    ends = np.full(len(program.devices), -np.inf)
    np.minimum.at(begins, device, timeline.start_s[jobs])
    np.maximum.at(ends, device, timeline.end_s[jobs])
    used = np.isfinite(begins)
    steady = float(begins[used].max())
    return Phases(steady, max(steady, float(ends[used].min())))
