"""The compiled list scheduler behind the schedule `auto`. See greedy.py for what it does and why."""

import numba
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.program.engine.heap_kernel import pop, push

NOT_YET = np.inf
FORWARD, RECOMPUTE, INPUT_GRAD, WEIGHT_GRAD, BACKWARD = 0, 1, 2, 3, 4


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _ready(ends: Floats, begin: Ints, source: Ints, delay: Floats, place: int, microbatch: int) -> float:
    """When all that a job needs has arrived; NOT_YET if some of it is not even done."""
    ready = 0.0
    for entry in range(begin[place], begin[place + 1]):
        ready = max(ready, ends[source[entry], microbatch] + delay[entry])
    return ready


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _wake(device: int, now: float, free_at: Floats, wake: Floats, keys: Floats, items: Ints, heap: int) -> int:
    """A device that needs what is being made looks again as soon as it is free; it then learns when that arrives."""
    moment = max(free_at[device], now)
    if moment < wake[device]:
        wake[device] = moment
        heap = push(keys, items, heap, moment, device)
    return heap


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_greedy(
    num_devices: int,
    num_microbatches: int,
    forward_device: Ints,
    backward_device: Ints,
    forward_s: Floats,
    recompute_s: Floats,
    input_grad_s: Floats,
    weight_grad_s: Floats,
    backward_s: Floats,
    is_recomputed: npt.NDArray[np.bool_],
    forward_begin: Ints,
    forward_source: Ints,
    forward_delay: Floats,
    backward_begin: Ints,
    backward_source: Ints,
    backward_delay: Floats,
    saved_delay: Floats,
    forward_wakes_begin: Ints,
    forward_wakes: Ints,
    backward_wakes_begin: Ints,
    backward_wakes: Ints,
    kept: Floats,
    room: Floats,
    reserve: Floats,
    rank: Floats,
    split: bool,
    patience: float,
) -> tuple[Ints, Ints, Ints, Ints, float, bool]:
    """Orders of all devices: how many jobs each has, then kind, place and micro-batch, device after device."""
    num_replicas = len(forward_device)
    forward_end = np.full((num_replicas, num_microbatches), NOT_YET)
    backward_end = np.full((num_replicas, num_microbatches), NOT_YET)
    next_forward = np.zeros(num_replicas, np.int64)
    next_backward = np.zeros(num_replicas, np.int64)
    next_weights = np.zeros(num_replicas, np.int64)
    free_at = np.zeros(num_devices)
    held = np.zeros(num_devices)
    # Places by device, both sides.
    first_forward = np.zeros(num_devices + 1, np.int64)
    first_backward = np.zeros(num_devices + 1, np.int64)
    for place in range(num_replicas):
        first_forward[forward_device[place] + 1] += 1
        first_backward[backward_device[place] + 1] += 1
    for device in range(num_devices):
        first_forward[device + 1] += first_forward[device]
        first_backward[device + 1] += first_backward[device]
    forward_places, backward_places = np.argsort(forward_device), np.argsort(backward_device)
    most = 0
    for place in range(num_replicas):
        most += num_microbatches * (3 if split else 2) + (num_microbatches if is_recomputed[place] else 0)
    out_device = np.empty(most, np.int64)
    out_kind, out_place, out_microbatch = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    size = 0
    wake = np.zeros(num_devices)
    # Every change of a wake-up pushes an entry; at most one a job and one a need of a job.
    capacity = num_devices + 2 * most + num_microbatches * (len(forward_wakes) + len(backward_wakes)) + 1
    keys, items = np.empty(capacity), np.empty(capacity, np.int64)
    heap = 0
    for device in range(num_devices):
        heap = push(keys, items, heap, 0.0, device)
    makespan = 0.0
    while heap > 0:
        now, device = keys[0], items[0]
        heap = pop(keys, items, heap)
        if wake[device] != now:
            continue
        wake[device] = NOT_YET
        began = now
        soonest = NOT_YET
        # Input gradients first: they are on the critical path, and what they free comes free.
        best, best_rank = -1, np.inf
        for entry in range(first_backward[device], first_backward[device + 1]):
            place = backward_places[entry]
            microbatch = next_backward[place]
            if microbatch < num_microbatches:
                ready = max(
                    _ready(backward_end, backward_begin, backward_source, backward_delay, place, microbatch),
                    forward_end[place, microbatch] + saved_delay[place],
                )
                if ready <= now:
                    if microbatch - 0.001 * rank[place] < best_rank:
                        best, best_rank = place, microbatch - 0.001 * rank[place]
                else:
                    soonest = min(soonest, ready)
        if best >= 0:
            place, microbatch = best, next_backward[best]
            if is_recomputed[place]:
                out_device[size], out_kind[size], out_place[size], out_microbatch[size] = (
                    device,
                    RECOMPUTE,
                    place,
                    microbatch,
                )
                size += 1
                now += recompute_s[place]
            kind = INPUT_GRAD if split else BACKWARD
            out_device[size], out_kind[size], out_place[size], out_microbatch[size] = device, kind, place, microbatch
            size += 1
            now += input_grad_s[place] if split else backward_s[place]
            if not split:
                held[device] -= kept[place]
                next_weights[place] += 1
            backward_end[place, microbatch] = now
            next_backward[place] += 1
            if forward_device[place] != device:
                held[device] += kept[place]
            for entry in range(backward_wakes_begin[place], backward_wakes_begin[place + 1]):
                heap = _wake(backward_wakes[entry], began, free_at, wake, keys, items, heap)
            free_at[device] = now
            wake[device] = now
            heap = push(keys, items, heap, now, device)
            makespan = max(makespan, now)
            continue
        # Then a forward, if there is room for what it keeps.
        best, best_rank = -1, np.inf
        is_full = False
        for entry in range(first_forward[device], first_forward[device + 1]):
            place = forward_places[entry]
            microbatch = next_forward[place]
            if microbatch < num_microbatches:
                ready = _ready(forward_end, forward_begin, forward_source, forward_delay, place, microbatch)
                if ready <= now:
                    home = backward_device[place] == device
                    if home and held[device] > 0 and held[device] + kept[place] + reserve[place] > room[device]:
                        is_full = True
                    elif -rank[place] < best_rank:
                        best, best_rank = place, -rank[place]
                else:
                    soonest = min(soonest, ready)
        if best >= 0:
            place, microbatch = best, next_forward[best]
            out_device[size], out_kind[size], out_place[size], out_microbatch[size] = device, FORWARD, place, microbatch
            size += 1
            now += forward_s[place]
            forward_end[place, microbatch] = now
            next_forward[place] += 1
            if backward_device[place] == device:
                held[device] += kept[place]
            for entry in range(forward_wakes_begin[place], forward_wakes_begin[place + 1]):
                heap = _wake(forward_wakes[entry], began, free_at, wake, keys, items, heap)
            free_at[device] = now
            wake[device] = now
            heap = push(keys, items, heap, now, device)
            makespan = max(makespan, now)
            continue
        # Else a weight gradient, unless something better is about to arrive.
        best, oldest = -1, num_microbatches
        for entry in range(first_backward[device], first_backward[device + 1]):
            place = backward_places[entry]
            if next_weights[place] < next_backward[place] and next_weights[place] < oldest:
                best, oldest = place, next_weights[place]
        if best >= 0 and (is_full or soonest - now >= patience * weight_grad_s[best]):
            out_device[size], out_kind[size], out_place[size], out_microbatch[size] = (
                device,
                WEIGHT_GRAD,
                best,
                next_weights[best],
            )
            size += 1
            now += weight_grad_s[best]
            next_weights[best] += 1
            held[device] -= kept[best]
            free_at[device] = now
            wake[device] = now
            heap = push(keys, items, heap, now, device)
            makespan = max(makespan, now)
            continue
        if soonest < NOT_YET:
            wake[device] = soonest
            heap = push(keys, items, heap, soonest, device)
    complete = True
    for place in range(num_replicas):
        if next_weights[place] < num_microbatches or next_forward[place] < num_microbatches:
            complete = False
    counts = np.zeros(num_devices, np.int64)
    for entry in range(size):
        counts[out_device[entry]] += 1
    order = np.argsort(out_device[:size], kind="mergesort")
    return counts, out_kind[:size][order], out_place[:size][order], out_microbatch[:size][order], makespan, complete
