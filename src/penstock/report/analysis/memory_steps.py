"""The memory of the devices over time, action by action, with every peak."""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.timeline import Timeline


class MemoryStrip(NamedTuple):
    """Bytes on the device while each compute action runs, and the most from its end to the start of the next."""

    during: Floats
    after: Floats


def memory_strip(timeline: Timeline) -> MemoryStrip:
    """The memory of every compute action, in program order.

    Transfers that a device starts before its first compute action count as part of that action.
    """
    program = timeline.program
    compute = np.flatnonzero(timeline.is_compute)
    if not len(compute):
        return MemoryStrip(np.zeros(0), np.zeros(0))
    most = np.maximum(timeline.memory_during, timeline.memory_after)
    is_first = np.append(True, program.device_of[compute[1:]] != program.device_of[compute[:-1]])
    device_end = program.offsets[1:][program.device_of[compute]]
    after = timeline.memory_after[compute].copy()
    stop = np.minimum(np.append(compute[1:], program.num_actions), device_end)
    between = np.flatnonzero(stop > compute + 1)
    for index in between.tolist():
        after[index] = max(after[index], float(most[compute[index] + 1 : stop[index]].max()))
    during = timeline.memory_during[compute].copy()
    for index in np.flatnonzero(is_first).tolist():
        begin = int(program.offsets[program.device_of[compute[index]]])
        during[index] = max(during[index], float(most[begin : compute[index] + 1].max(initial=0.0)))
    return MemoryStrip(during, after)
