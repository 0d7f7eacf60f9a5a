"""The compiled estimate of how long an order takes, and the local search over orders. See estimate.py, polish.py."""

import numba
import numpy as np

from penstock.arrays import Floats, Ints

NOWHERE = -1
STUCK = np.inf
STAYS_HERE = -1
"""The link of what does not leave its device."""
REACHES = (1, 2, 3, 6, 1, 1)
"""By how many positions a job is moved."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_order(
    offsets: Ints,
    order: Ints,
    num_microbatches: int,
    device_of: Ints,
    seconds: Floats,
    num_needs: Ints,
    begin: Ints,
    target: Ints,
    link: Ints,
    occupancy: Floats,
    latency: Floats,
    num_links: int,
    start: Floats,
    end: Floats,
    cause: Ints,
    queued: Ints,
    missing: Ints,
    link_free: Floats,
    link_last: Ints,
    counter: Ints,
    stack: Ints,
) -> bool:
    """Start, end and cause (the job that it waited for) of every job; False if the devices wait for each other.

    `queued` is the job whose message was before that of the cause on its link, if that one had to wait for it.

    A job is state * micro-batches + micro-batch; `order` has the jobs device after device. Arrays from `start` on are
    worked in, so that a search need not make them anew.
    """
    num_devices = len(offsets) - 1
    for state in range(len(device_of)):
        for microbatch in range(num_microbatches):
            job = state * num_microbatches + microbatch
            start[job] = 0.0
            cause[job] = NOWHERE
            queued[job] = NOWHERE
            missing[job] = num_needs[state]
    for index in range(num_links):
        link_free[index] = 0.0
    size = 0
    for device in range(num_devices):
        counter[device] = offsets[device]
        stack[size] = device
        size += 1
    done = 0
    while size > 0:
        size -= 1
        device = stack[size]
        index = counter[device]
        while index < offsets[device + 1]:
            job = order[index]
            if missing[job] > 0:
                break
            state = job // num_microbatches
            microbatch = job - state * num_microbatches
            if index > offsets[device] and end[order[index - 1]] >= start[job]:
                start[job] = end[order[index - 1]]
                cause[job] = order[index - 1]
                queued[job] = NOWHERE
            now = start[job] + seconds[job]
            end[job] = now
            index += 1
            done += 1
            counter[device] = index
            for entry in range(begin[state], begin[state + 1]):
                follower = target[entry] * num_microbatches + microbatch
                arrival = now
                waited_for = NOWHERE
                if link[entry] != STAYS_HERE:
                    if link_free[link[entry]] > now:
                        waited_for = link_last[link[entry]]
                    free = max(link_free[link[entry]], now) + occupancy[entry]
                    link_free[link[entry]] = free
                    link_last[link[entry]] = job
                    arrival = free + latency[entry]
                if arrival > start[follower]:
                    start[follower] = arrival
                    cause[follower] = job
                    queued[follower] = waited_for
                missing[follower] -= 1
                if missing[follower] == 0:
                    other = device_of[target[entry]]
                    if other != device and counter[other] < offsets[other + 1] and order[counter[other]] == follower:
                        stack[size] = other
                        size += 1
    return bool(done == offsets[num_devices])


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def last_moment(
    end: Floats, num_microbatches: int, closing_begin: Ints, closing_state: Ints, closing_s: Floats
) -> tuple[float, int]:
    """When the iteration ends, and the job that this waits for.

    What closes an iteration begins when all jobs of its states are done, and takes its seconds.
    """
    latest, culprit = -1.0, NOWHERE
    for closing in range(len(closing_begin) - 1):
        ready, last = -1.0, NOWHERE
        for entry in range(closing_begin[closing], closing_begin[closing + 1]):
            for microbatch in range(num_microbatches):
                job = closing_state[entry] * num_microbatches + microbatch
                if end[job] > ready:
                    ready, last = end[job], job
        if ready + closing_s[closing] > latest:
            latest, culprit = ready + closing_s[closing], last
    return latest, culprit


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _peak(first: int, last: int, order: Ints, before: Floats, after: Floats) -> float:
    """The most that a device keeps along its order."""
    held, peak = 0.0, 0.0
    for index in range(first, last):
        held += before[order[index]]
        peak = max(peak, held)
        held += after[order[index]]
    return peak


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _next_random(state: np.uint64) -> np.uint64:
    """Xorshift: the same numbers everywhere."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _shift(order: Ints, source: int, target: int) -> None:
    """The job at one position goes to another; those between move up or down by one."""
    job = order[source]
    step = 1 if target > source else -1
    for index in range(source, target, step):
        order[index] = order[index + step]
    order[target] = job


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_polish(
    offsets: Ints,
    first_order: Ints,
    num_microbatches: int,
    device_of: Ints,
    seconds: Floats,
    num_needs: Ints,
    begin: Ints,
    target: Ints,
    link: Ints,
    occupancy: Floats,
    latency: Floats,
    num_links: int,
    closing_begin: Ints,
    closing_state: Ints,
    closing_s: Floats,
    before: Floats,
    after: Floats,
    room: Floats,
    num_tries: int,
    tolerance: float,
    seed: int,
) -> tuple[Ints, float]:
    """The best order found by moving jobs that stand on the critical path, and its seconds."""
    num_jobs = len(device_of) * num_microbatches
    start, end = np.zeros(num_jobs), np.zeros(num_jobs)
    cause, queued, missing = np.empty(num_jobs, np.int64), np.empty(num_jobs, np.int64), np.empty(num_jobs, np.int64)
    link_free, link_last, num_devices = np.zeros(num_links), np.zeros(num_links, np.int64), len(offsets) - 1
    counter, stack = np.empty(num_devices, np.int64), np.empty(num_devices + num_jobs, np.int64)
    index_of = np.empty(num_jobs, np.int64)
    critical = np.empty(2 * num_jobs, np.int64)
    order, best_order = first_order.copy(), first_order.copy()
    best = current = STUCK
    state = np.uint64(seed * 2654435769 + 88172645463325252)
    moved_from = moved_to = NOWHERE
    num_critical = 0
    for turn in range(num_tries + 1):
        ended = run_order(
            offsets,
            order,
            num_microbatches,
            device_of,
            seconds,
            num_needs,
            begin,
            target,
            link,
            occupancy,
            latency,
            num_links,
            start,
            end,
            cause,
            queued,
            missing,
            link_free,
            link_last,
            counter,
            stack,
        )
        latest, culprit = STUCK, NOWHERE
        if ended:
            latest, culprit = last_moment(end, num_microbatches, closing_begin, closing_state, closing_s)
        allowed = current * (1.0 + tolerance * (1.0 - turn / num_tries))
        accepted = turn == 0 or (ended and latest <= allowed)
        if accepted and moved_from != NOWHERE:
            device = device_of[order[moved_to] // num_microbatches]
            accepted = _peak(offsets[device], offsets[device + 1], order, before, after) <= room[device]
        if not accepted:
            _shift(order, moved_to, moved_from)
        else:
            if not ended:
                break
            current = latest
            if latest < best:
                best = latest
                best_order[:] = order
            # Indices at which a job waits for its neighbour on the device, or its message for another one on the link,
            # along the critical path.
            for index in range(len(order)):
                index_of[order[index]] = index
            size = 0
            job = culprit
            while job != NOWHERE:
                before_it = cause[job]
                index = index_of[job]
                if index > 0 and before_it != NOWHERE and order[index - 1] == before_it:
                    device = device_of[job // num_microbatches]
                    if index > offsets[device]:
                        critical[size] = index
                        size += 1
                if queued[job] != NOWHERE:
                    index = index_of[before_it]
                    device = device_of[before_it // num_microbatches]
                    if index > offsets[device]:
                        critical[size] = index
                        size += 1
                    before_it = queued[job]
                job = before_it
            num_critical = size
        if num_critical == 0:
            break
        state = _next_random(state)
        index = critical[np.int64(state % np.uint64(num_critical))]
        device = device_of[order[index] // num_microbatches]
        state = _next_random(state)
        # Mostly to the neighbouring position, at times up to three further.
        reach = REACHES[np.int64((state >> np.uint64(8)) % np.uint64(len(REACHES)))]
        if (state >> np.uint64(20)) % np.uint64(2) == np.uint64(0):
            moved_from, moved_to = index, max(index - reach, offsets[device])
        else:
            moved_from, moved_to = index - 1, min(index - 1 + reach, offsets[device + 1] - 1)
        _shift(order, moved_from, moved_to)
    return best_order, best
