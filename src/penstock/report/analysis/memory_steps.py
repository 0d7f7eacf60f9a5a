"""The memory of devices over time, job by job, such that no peak is lost."""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.timeline import Timeline


class MemoryStrip(NamedTuple):
    """Bytes on the device while each job runs, and the most from its end to the start of the next."""

    during: Floats
    after: Floats


def memory_strip(timeline: Timeline) -> MemoryStrip:
    """For each action that keeps its device busy, in their order.

    Messages that are set going before a device's first job count as if they were part of that job.
    """
    program = timeline.program
    jobs = np.flatnonzero(timeline.is_compute)
    if not len(jobs):
        return MemoryStrip(np.zeros(0), np.zeros(0))
    most = np.maximum(timeline.memory_during, timeline.memory_after)
    is_first = np.append(True, program.device_of[jobs[1:]] != program.device_of[jobs[:-1]])
    device_end = program.offsets[1:][program.device_of[jobs]]
    after = timeline.memory_after[jobs].copy()
    stop = np.minimum(np.append(jobs[1:], program.num_actions), device_end)
    between = np.flatnonzero(stop > jobs + 1)
    for place in between.tolist():
        after[place] = max(after[place], float(most[jobs[place] + 1 : stop[place]].max()))
    during = timeline.memory_during[jobs].copy()
    for place in np.flatnonzero(is_first).tolist():
        begin = int(program.offsets[program.device_of[jobs[place]]])
        during[place] = max(during[place], float(most[begin : jobs[place] + 1].max(initial=0.0)))
    return MemoryStrip(during, after)
