"""Compiled `meet_plainly`."""

import numba
import numpy as np

from penstock.arrays import Int32s, Ints


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def meet(offsets: Ints, meetings: Int32s, num_devices: Int32s) -> Ints:
    """The action at which each device stops if it waits at every rendezvous."""
    absent, counter = num_devices.copy(), offsets[:-1].copy()
    # The devices present at each rendezvous, as a linked list.
    last, before = np.full(len(absent), -1, np.int32), np.empty(len(counter), np.int32)
    devices, num_running = np.arange(len(counter)), len(counter)
    while num_running > 0:
        num_running -= 1
        device = devices[num_running]
        action = counter[device]
        while action < offsets[device + 1]:
            meeting = meetings[action]
            if meeting >= 0:
                absent[meeting] -= 1
                if absent[meeting] > 0:
                    before[device] = last[meeting]
                    last[meeting] = device
                    break
                other = last[meeting]
                while other >= 0:
                    counter[other] += 1
                    devices[num_running] = other
                    num_running += 1
                    other = before[other]
            action += 1
        counter[device] = action
    return counter
