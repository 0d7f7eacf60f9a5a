"""The compiled part of PE: every device runs the earliest available micro-batch. Import lazily: it compiles with numba.

A *track* is one side (forward or backward) of one replica: number 2 * replica + side. It runs its micro-batches in
order.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program.engine.heap_kernel import pop, push

ARRIVED, SENT, FREE = 1, 2, 4


class Tracks(NamedTuple):
    """The tracks of a plan, and which of them each device holds."""

    device: Ints
    """[track]"""
    until_sent: Floats
    """[track] seconds until the result is sent."""
    seconds: Floats
    """[track] seconds until the device is free."""
    limit: Ints
    """[replica] the micro-batches that may be in flight."""
    held_begin: Ints
    held: Ints
    """held[held_begin[d] : held_begin[d + 1]] are a device's tracks, backwards first, later ones first."""
    num_needs: Ints
    """[track] the number of inputs of each micro-batch."""


class Sends(NamedTuple):
    """What each track sends at the end of a pass: entries begin[track] up to begin[track + 1]."""

    begin: Ints
    line: Ints
    """The link, or -1 if the tensors stay on the device."""
    target: Ints
    """The track that needs it."""
    occupancy: Floats
    latency: Floats


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_greedily(num_microbatches: int, tracks: Tracks, sends: Sends, num_lines: int) -> tuple[Ints, Ints]:
    """The tracks and micro-batches in the order in which they are started."""
    device, held_begin = tracks.device, tracks.held_begin
    num_tracks, num_devices = len(device), len(held_begin) - 1
    order_track = np.empty(num_tracks * num_microbatches, np.int64)
    order_microbatch = np.empty(num_tracks * num_microbatches, np.int64)
    missing = np.empty((num_tracks, num_microbatches), np.int64)
    for track in range(num_tracks):
        missing[track, :] = tracks.num_needs[track]
    begun, ended = np.zeros(num_tracks, np.int64), np.zeros(num_tracks, np.int64)
    line_free, busy = np.zeros(num_lines), np.zeros(num_devices, np.bool_)
    waking, is_waking = np.arange(num_devices), np.ones(num_devices, np.bool_)
    first_waking, num_waking = 0, num_devices
    most_events = (2 * num_tracks + len(sends.line)) * num_microbatches
    event_what, event_track = np.empty(most_events, np.int64), np.empty(most_events, np.int64)
    event_microbatch = np.empty(most_events, np.int64)
    heap_times, heap_items = np.empty(most_events), np.empty(most_events, np.int64)
    heap_size, num_events, num_started = 0, 0, 0
    now = 0.0
    while heap_size > 0 or num_waking > 0:
        # First everything that happens at a time, then what can start at that time.
        if num_waking > 0 and not (heap_size > 0 and heap_times[0] <= now):
            home = waking[first_waking]
            first_waking = (first_waking + 1) % num_devices
            num_waking -= 1
            is_waking[home] = False
            if busy[home]:
                continue
            best = -1
            for entry in range(held_begin[home], held_begin[home + 1]):
                track = tracks.held[entry]
                number = begun[track]
                if best >= 0 and (best & 1) > (track & 1):
                    break
                if number == num_microbatches or missing[track, number] > 0:
                    continue
                if track & 1 == 0 and number - ended[track + 1] >= tracks.limit[track >> 1]:
                    continue
                if best < 0 or number < begun[best]:
                    best = track
            if best < 0:
                continue
            order_track[num_started], order_microbatch[num_started] = best, begun[best]
            num_started += 1
            busy[home] = True
            together = tracks.until_sent[best] == tracks.seconds[best]
            event_what[num_events] = SENT + FREE if together else SENT
            event_track[num_events], event_microbatch[num_events] = best, begun[best]
            heap_size = push(heap_times, heap_items, heap_size, now + tracks.until_sent[best], num_events)
            num_events += 1
            if not together:
                event_what[num_events] = FREE
                event_track[num_events], event_microbatch[num_events] = best, begun[best]
                heap_size = push(heap_times, heap_items, heap_size, now + tracks.seconds[best], num_events)
                num_events += 1
            begun[best] += 1
            continue
        now, event = heap_times[0], heap_items[0]
        heap_size = pop(heap_times, heap_items, heap_size)
        what, track, microbatch = event_what[event], event_track[event], event_microbatch[event]
        first, last = (sends.begin[track], sends.begin[track + 1]) if what & SENT else (0, 0)
        if what == ARRIVED:
            missing[track, microbatch] -= 1
        for send in range(first, last):
            target, line = sends.target[send], sends.line[send]
            if line < 0:
                missing[target, microbatch] -= 1
                if missing[target, microbatch] == 0 and not is_waking[device[target]]:
                    is_waking[device[target]] = True
                    waking[(first_waking + num_waking) % num_devices] = device[target]
                    num_waking += 1
                continue
            line_free[line] = max(now, line_free[line]) + sends.occupancy[send]
            event_what[num_events], event_track[num_events] = ARRIVED, target
            event_microbatch[num_events] = microbatch
            arrival = line_free[line] + sends.latency[send]
            heap_size = push(heap_times, heap_items, heap_size, arrival, num_events)
            num_events += 1
        if what & FREE:
            busy[device[track]] = False
            ended[track] += 1
        # Its own device may continue; after a backward, so may the forward that waited for it.
        for index in (device[track], device[track & ~1]):
            if not is_waking[index]:
                is_waking[index] = True
                waking[(first_waking + num_waking) % num_devices] = index
                num_waking += 1
    return order_track, order_microbatch
