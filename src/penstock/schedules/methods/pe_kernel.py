"""The compiled part of PE: every device takes the earliest available micro-batch. Imported late.

A *track* is one side (forward or backward) of one replica: number 2 * replica + side. It runs its micro-batches in
order.
"""

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program.engine.heap_kernel import pop, push

ARRIVED, SENT, FREE = 1, 2, 4


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_greedily(
    num_microbatches: int,
    device: Ints,
    until_sent: Floats,
    seconds: Floats,
    limit: Ints,
    held_begin: Ints,
    held: Ints,
    send_begin: Ints,
    send_line: Ints,
    send_target: Ints,
    send_occupancy: Floats,
    send_latency: Floats,
    num_needs: Ints,
    num_lines: int,
) -> tuple[Ints, Ints]:
    """The tracks and micro-batches in the order in which they are started.

    Over tracks: device, seconds until the result is sent and until the device is free, what is sent (to which track,
    over which channel or -1), and the number of inputs per micro-batch. Over replicas: the micro-batches that may be in
    flight. `held[held_begin[d] : held_begin[d + 1]]` are a device's tracks, backwards first, later ones first.
    """
    num_tracks, num_devices = len(device), len(held_begin) - 1
    order_track = np.empty(num_tracks * num_microbatches, np.int64)
    order_microbatch = np.empty(num_tracks * num_microbatches, np.int64)
    missing = np.empty((num_tracks, num_microbatches), np.int64)
    for track in range(num_tracks):
        missing[track, :] = num_needs[track]
    begun, ended = np.zeros(num_tracks, np.int64), np.zeros(num_tracks, np.int64)
    line_free, busy = np.zeros(num_lines), np.zeros(num_devices, np.bool_)
    waking, is_waking = np.arange(num_devices), np.ones(num_devices, np.bool_)
    first_waking, num_waking = 0, num_devices
    most_events = (2 * num_tracks + len(send_line)) * num_microbatches
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
                track = held[entry]
                number = begun[track]
                if best >= 0 and (best & 1) > (track & 1):
                    break
                if number == num_microbatches or missing[track, number] > 0:
                    continue
                if track & 1 == 0 and number - ended[track + 1] >= limit[track >> 1]:
                    continue
                if best < 0 or number < begun[best]:
                    best = track
            if best < 0:
                continue
            order_track[num_started], order_microbatch[num_started] = best, begun[best]
            num_started += 1
            busy[home] = True
            together = until_sent[best] == seconds[best]
            event_what[num_events] = SENT + FREE if together else SENT
            event_track[num_events], event_microbatch[num_events] = best, begun[best]
            heap_size = push(heap_times, heap_items, heap_size, now + until_sent[best], num_events)
            num_events += 1
            if not together:
                event_what[num_events] = FREE
                event_track[num_events], event_microbatch[num_events] = best, begun[best]
                heap_size = push(heap_times, heap_items, heap_size, now + seconds[best], num_events)
                num_events += 1
            begun[best] += 1
            continue
        now, event = heap_times[0], heap_items[0]
        heap_size = pop(heap_times, heap_items, heap_size)
        what, track, microbatch = event_what[event], event_track[event], event_microbatch[event]
        first, last = (send_begin[track], send_begin[track + 1]) if what & SENT else (0, 0)
        if what == ARRIVED:
            missing[track, microbatch] -= 1
        for send in range(first, last):
            target, line = send_target[send], send_line[send]
            if line < 0:
                missing[target, microbatch] -= 1
                if missing[target, microbatch] == 0 and not is_waking[device[target]]:
                    is_waking[device[target]] = True
                    waking[(first_waking + num_waking) % num_devices] = device[target]
                    num_waking += 1
                continue
            line_free[line] = max(now, line_free[line]) + send_occupancy[send]
            event_what[num_events], event_track[num_events] = ARRIVED, target
            event_microbatch[num_events] = microbatch
            arrival = line_free[line] + send_latency[send]
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
