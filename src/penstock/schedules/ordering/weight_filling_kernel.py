"""The compiled weight-gradient filling. See weight_filling.py."""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.program import BACKWARD, FORWARD, WEIGHTS

NOT_YET = -1.0


class Track(NamedTuple):
    """The given passes, device after device: those of device d are offsets[d] up to offsets[d + 1]."""

    offsets: Ints
    kind: Ints
    replica: Ints
    microbatch: Ints


class Graph(NamedTuple):
    """For each pass (kind * replicas + replica) what it needs, and which devices it may unblock."""

    need_begin: Ints
    need: Ints
    """need[need_begin[p] : need_begin[p + 1]] are the passes that pass p needs."""
    need_delay: Floats
    """Seconds of the message from each of them; zero on the same device."""
    wake_begin: Ints
    wake_device: Ints
    """wake_device[wake_begin[p] : wake_begin[p + 1]] are the other devices that pass p may unblock."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_filling(
    track: Track,
    graph: Graph,
    num_microbatches: int,
    seconds: Floats,
    is_home: Bools,
    most_kept: int,
    least_fit: float,
) -> tuple[Ints, Ints, Ints, Ints]:
    """The number of passes per device; then kind, replica and micro-batch of all, device after device.

    Devices take turns; a blocked device is woken by its dependency.
    """
    offsets, kind, replica, microbatch = track.offsets, track.kind, track.replica, track.microbatch
    num_devices, num_replicas = len(offsets) - 1, len(is_home)
    end = np.full(3 * num_replicas * num_microbatches, NOT_YET)
    clock, kept = np.zeros(num_devices), np.zeros(num_devices, np.int64)
    counter = offsets[:-1].copy()
    # Each device has room for its track and one weight gradient for each of its backwards.
    out_begin = np.zeros(num_devices + 1, np.int64)
    due_begin = np.zeros(num_devices + 1, np.int64)
    for device in range(num_devices):
        backwards = 0
        for entry in range(offsets[device], offsets[device + 1]):
            if kind[entry] == BACKWARD:
                backwards += 1
        due_begin[device + 1] = due_begin[device] + backwards
        out_begin[device + 1] = out_begin[device] + offsets[device + 1] - offsets[device] + backwards
    size = out_begin[num_devices]
    out_kind, out_replica, out_microbatch = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    out = out_begin[:-1].copy()
    due_replica, due_microbatch = np.empty(len(kind), np.int64), np.empty(len(kind), np.int64)
    due_head, due_tail = due_begin[:-1].copy(), due_begin[:-1].copy()
    stack, is_waiting = np.empty(num_devices, np.int64), np.ones(num_devices, np.bool_)
    for device in range(num_devices):
        stack[device] = device
    height = num_devices
    while height > 0:
        height -= 1
        device = stack[height]
        is_waiting[device] = False
        while counter[device] < offsets[device + 1]:
            entry = counter[device]
            state = kind[entry] * num_replicas + replica[entry]
            ready, is_ready = 0.0, True
            for need in range(graph.need_begin[state], graph.need_begin[state + 1]):
                done = end[graph.need[need] * num_microbatches + microbatch[entry]]
                if done == NOT_YET:
                    is_ready = False
                    break
                ready = max(ready, done + graph.need_delay[need])
            if not is_ready:
                break
            while due_head[device] < due_tail[device]:
                due = due_head[device]
                weights = WEIGHTS * num_replicas + due_replica[due]
                fits = clock[device] + least_fit * seconds[weights] <= ready
                full = kind[entry] == FORWARD and kept[device] >= most_kept
                if not (fits or full):
                    break
                clock[device] += seconds[weights]
                kept[device] -= 1
                out_kind[out[device]] = WEIGHTS
                out_replica[out[device]], out_microbatch[out[device]] = due_replica[due], due_microbatch[due]
                out[device] += 1
                due_head[device] += 1
            clock[device] = max(clock[device], ready) + seconds[state]
            end[state * num_microbatches + microbatch[entry]] = clock[device]
            out_kind[out[device]] = kind[entry]
            out_replica[out[device]], out_microbatch[out[device]] = replica[entry], microbatch[entry]
            out[device] += 1
            if kind[entry] == BACKWARD:
                due_replica[due_tail[device]], due_microbatch[due_tail[device]] = replica[entry], microbatch[entry]
                due_tail[device] += 1
                if not is_home[replica[entry]]:
                    kept[device] += 1
            elif kind[entry] == FORWARD and is_home[replica[entry]]:
                kept[device] += 1
            counter[device] += 1
            for wake in range(graph.wake_begin[state], graph.wake_begin[state + 1]):
                other = graph.wake_device[wake]
                if not is_waiting[other] and other != device:
                    is_waiting[other] = True
                    stack[height] = other
                    height += 1
    for device in range(num_devices):
        for due in range(due_head[device], due_tail[device]):
            out_kind[out[device]] = WEIGHTS
            out_replica[out[device]], out_microbatch[out[device]] = due_replica[due], due_microbatch[due]
            out[device] += 1
    counts = np.empty(num_devices, np.int64)
    for device in range(num_devices):
        counts[device] = out[device] - out_begin[device]
    return counts, out_kind, out_replica, out_microbatch
