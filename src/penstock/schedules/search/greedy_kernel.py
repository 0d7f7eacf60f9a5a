"""The compiled list scheduler behind the schedule `auto`. See greedy.py."""

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.program.engine.heap_kernel import pop, push
from penstock.schedules.search.pass_graph import PassGraph, Sources

NOT_YET = np.inf
FORWARD, RECOMPUTE, INPUT_GRAD, WEIGHT_GRAD, BACKWARD = 0, 1, 2, 3, 4


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _ready(ends: Floats, sources: Sources, replica: int, microbatch: int) -> float:
    """When all dependencies of a pass have arrived; NOT_YET if one is not done."""
    ready = 0.0
    for entry in range(sources.begin[replica], sources.begin[replica + 1]):
        ready = max(ready, ends[sources.replica[entry], microbatch] + sources.delay[entry])
    return ready


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _wake(device: int, now: float, free_at: Floats, wake: Floats, keys: Floats, items: Ints, heap: int) -> int:
    """Wake a device that depends on a running pass as soon as it is idle."""
    moment = max(free_at[device], now)
    if moment < wake[device]:
        wake[device] = moment
        heap = push(keys, items, heap, moment, device)
    return heap


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_greedy(
    graph: PassGraph, room: Floats, rank: Floats, split: bool, patience: float
) -> tuple[Ints, Ints, Ints, Ints, float, bool, Floats]:
    """Orders of all devices: how many jobs each has, then kind, replica and micro-batch, device after device.

    Then the time, whether all jobs are done, and the least room with which each device runs the same order; inf if it
    has run out of room.
    """
    num_devices, num_microbatches, num_replicas = graph.num_devices, graph.num_microbatches, len(graph.kept)
    forward_device, backward_device = graph.forward_device, graph.backward_device
    forward, backward, kept = graph.forward, graph.backward, graph.kept
    needed = np.zeros(num_devices)
    forward_end = np.full((num_replicas, num_microbatches), NOT_YET)
    backward_end = np.full((num_replicas, num_microbatches), NOT_YET)
    next_forward = np.zeros(num_replicas, np.int64)
    next_backward = np.zeros(num_replicas, np.int64)
    next_weights = np.zeros(num_replicas, np.int64)
    free_at = np.zeros(num_devices)
    held = np.zeros(num_devices)
    # Replicas by device, both sides.
    first_forward = np.zeros(num_devices + 1, np.int64)
    first_backward = np.zeros(num_devices + 1, np.int64)
    for replica in range(num_replicas):
        first_forward[forward_device[replica] + 1] += 1
        first_backward[backward_device[replica] + 1] += 1
    for device in range(num_devices):
        first_forward[device + 1] += first_forward[device]
        first_backward[device + 1] += first_backward[device]
    forward_replicas, backward_replicas = np.argsort(forward_device), np.argsort(backward_device)
    most = 0
    for replica in range(num_replicas):
        most += num_microbatches * (3 if split else 2) + (num_microbatches if graph.is_recomputed[replica] else 0)
    out_device = np.empty(most, np.int64)
    out_kind, out_replica, out_microbatch = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    size = 0
    wake = np.zeros(num_devices)
    # Every change of a wake-up pushes an entry; at most one per pass and one per dependency.
    capacity = (
        num_devices
        + 2 * most
        + num_microbatches * (len(graph.forward_wakes.device) + len(graph.backward_wakes.device))
        + 1
    )
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
        # Input gradients first: they are on the critical path and free memory.
        best, best_rank = -1, np.inf
        for entry in range(first_backward[device], first_backward[device + 1]):
            replica = backward_replicas[entry]
            microbatch = next_backward[replica]
            if microbatch < num_microbatches:
                ready = max(
                    _ready(backward_end, backward, replica, microbatch),
                    forward_end[replica, microbatch] + graph.saved_delay[replica],
                )
                if ready <= now:
                    if microbatch - 0.001 * rank[replica] < best_rank:
                        best, best_rank = replica, microbatch - 0.001 * rank[replica]
                else:
                    soonest = min(soonest, ready)
        if best >= 0:
            replica, microbatch = best, next_backward[best]
            if graph.is_recomputed[replica]:
                out_device[size], out_kind[size], out_replica[size], out_microbatch[size] = (
                    device,
                    RECOMPUTE,
                    replica,
                    microbatch,
                )
                size += 1
                now += graph.recompute_s[replica]
            kind = INPUT_GRAD if split else BACKWARD
            out_device[size], out_kind[size], out_replica[size], out_microbatch[size] = (
                device,
                kind,
                replica,
                microbatch,
            )
            size += 1
            now += graph.input_grad_s[replica] if split else graph.backward_s[replica]
            if not split:
                held[device] -= kept[replica]
                next_weights[replica] += 1
            backward_end[replica, microbatch] = now
            next_backward[replica] += 1
            if forward_device[replica] != device:
                held[device] += kept[replica]
            for entry in range(graph.backward_wakes.begin[replica], graph.backward_wakes.begin[replica + 1]):
                heap = _wake(graph.backward_wakes.device[entry], began, free_at, wake, keys, items, heap)
            free_at[device] = now
            wake[device] = now
            heap = push(keys, items, heap, now, device)
            makespan = max(makespan, now)
            continue
        # Then a forward, if there is room for what it keeps.
        best, best_rank = -1, np.inf
        is_full = False
        for entry in range(first_forward[device], first_forward[device + 1]):
            replica = forward_replicas[entry]
            microbatch = next_forward[replica]
            if microbatch < num_microbatches:
                ready = _ready(forward_end, forward, replica, microbatch)
                if ready <= now:
                    use = 0.0
                    if backward_device[replica] == device and held[device] > 0:
                        use = held[device] + kept[replica] + graph.reserve[replica]
                    needed[device] = max(needed[device], use)
                    if use > room[device]:
                        is_full = True
                        needed[device] = np.inf
                    elif -rank[replica] < best_rank:
                        best, best_rank = replica, -rank[replica]
                else:
                    soonest = min(soonest, ready)
        if best >= 0:
            replica, microbatch = best, next_forward[best]
            out_device[size], out_kind[size], out_replica[size], out_microbatch[size] = (
                device,
                FORWARD,
                replica,
                microbatch,
            )
            size += 1
            now += graph.forward_s[replica]
            forward_end[replica, microbatch] = now
            next_forward[replica] += 1
            if backward_device[replica] == device:
                held[device] += kept[replica]
            for entry in range(graph.forward_wakes.begin[replica], graph.forward_wakes.begin[replica + 1]):
                heap = _wake(graph.forward_wakes.device[entry], began, free_at, wake, keys, items, heap)
            free_at[device] = now
            wake[device] = now
            heap = push(keys, items, heap, now, device)
            makespan = max(makespan, now)
            continue
        # Else a weight gradient, unless something better is about to arrive.
        best, oldest = -1, num_microbatches
        for entry in range(first_backward[device], first_backward[device + 1]):
            replica = backward_replicas[entry]
            if next_weights[replica] < next_backward[replica] and next_weights[replica] < oldest:
                best, oldest = replica, next_weights[replica]
        if best >= 0 and (is_full or soonest - now >= patience * graph.weight_grad_s[best]):
            out_device[size], out_kind[size], out_replica[size], out_microbatch[size] = (
                device,
                WEIGHT_GRAD,
                best,
                next_weights[best],
            )
            size += 1
            now += graph.weight_grad_s[best]
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
    for replica in range(num_replicas):
        if next_weights[replica] < num_microbatches or next_forward[replica] < num_microbatches:
            complete = False
    counts = np.zeros(num_devices, np.int64)
    for entry in range(size):
        counts[out_device[entry]] += 1
    order = np.argsort(out_device[:size], kind="mergesort")
    return (
        counts,
        out_kind[:size][order],
        out_replica[:size][order],
        out_microbatch[:size][order],
        makespan,
        complete,
        needed,
    )
