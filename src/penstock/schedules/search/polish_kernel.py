"""The compiled local search over orders. See polish.py.

A change is timed from the last saved run in which its device had not reached it, and only until it is sure to be
rejected. So the result is that of timing every change from beginning to end.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.schedules.search.estimate_kernel import (
    NOWHERE,
    Run,
    advance,
    begin_run,
    last_moment,
    new_run,
)
from penstock.schedules.search.job_graph import SAME_DEVICE, JobGraph

REACHES = (1, 2, 3, 6, 1, 1)
"""By how many positions a job is moved."""
JOBS_BETWEEN_SAVES = 64
ROUNDING = 1e-9
"""A time counts as later than a limit only if it exceeds the limit by more than rounding."""


class Memory(NamedTuple):
    """Bytes that the jobs keep."""

    before: Floats
    """Over jobs: bytes that each allocates."""
    after: Floats
    """Over jobs: bytes that each allocates (or frees, negative) when it is done."""
    room: Floats
    """Over devices: maximum bytes that they may keep."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _peak(first: int, last: int, order: Ints, memory: Memory) -> float:
    """The most that a device keeps along its order."""
    held, peak = 0.0, 0.0
    for index in range(first, last):
        held += memory.before[order[index]]
        peak = max(peak, held)
        held += memory.after[order[index]]
    return peak


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _next_random(state: np.uint64) -> np.uint64:
    """Xorshift: the same numbers everywhere."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    return state ^ (state << np.uint64(17))


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _shift(order: Ints, source: int, target: int) -> None:
    """Move the job at one position to another; shift those between by one."""
    job = order[source]
    step = 1 if target > source else -1
    for index in range(source, target, step):
        order[index] = order[index + step]
    order[target] = job


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _passes_a_dependency(order: Ints, moved_to: int, moved_from: int, graph: JobGraph) -> bool:
    """Whether a job that was moved now precedes one it depends on within its device, or follows a dependent one."""
    num_microbatches = graph.num_microbatches
    job = order[moved_to]
    state, microbatch = job // num_microbatches, job % num_microbatches
    for index in range(min(moved_to, moved_from), max(moved_to, moved_from) + 1):
        other = order[index] // num_microbatches
        if order[index] % num_microbatches != microbatch or index == moved_to:
            continue
        earlier, later = (other, state) if moved_to < moved_from else (state, other)
        for entry in range(graph.begin[earlier], graph.begin[earlier + 1]):
            if graph.target[entry] == later and graph.link[entry] == SAME_DEVICE:
                return True
    return False


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _copy(source: Run, target: Run) -> None:
    """Copy the state of a run."""
    for job in range(len(source.moment)):
        target.moment[job] = source.moment[job]
    for job in range(len(source.cause)):
        target.cause[job] = source.cause[job]
        target.queued[job] = source.queued[job]
        target.missing[job] = source.missing[job]
    for link in range(len(source.link_free)):
        target.link_free[link] = source.link_free[link]
        target.link_last[link] = source.link_last[link]
    for device in range(len(source.counter)):
        target.counter[device] = source.counter[device]
        target.rest[device] = source.rest[device]
    for index in range(source.stack[-2]):
        target.stack[index] = source.stack[index]
    target.stack[-2] = source.stack[-2]
    target.stack[-1] = source.stack[-1]


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _tails(order: Ints, seconds: Floats, graph: JobGraph) -> Floats:
    """Over states: least time from the end of a job of the state to the end of the iteration."""
    num_states, num_microbatches = len(graph.device_of), graph.num_microbatches
    least = np.full(num_states, np.inf)
    count = np.zeros(num_states, np.int64)
    for job in order:
        state = job // num_microbatches
        least[state] = min(least[state], seconds[job])
        count[state] += 1
    for state in range(num_states):
        if count[state] < num_microbatches:  # weight gradients that are part of a fused backward
            least[state] = 0.0
    tail = np.zeros(num_states)
    for closing in range(len(graph.closing_s)):
        for entry in range(graph.closing_begin[closing], graph.closing_begin[closing + 1]):
            state = graph.closing_state[entry]
            if count[state] == num_microbatches:
                tail[state] = max(tail[state], graph.closing_s[closing])
    changed = True
    while changed:
        changed = False
        for state in range(num_states - 1, -1, -1):
            for entry in range(graph.begin[state], graph.begin[state + 1]):
                target = graph.target[entry]
                after = graph.occupancy[entry] + graph.latency[entry] + least[target] + tail[target]
                if count[target] == num_microbatches and after > tail[state] * (1.0 + ROUNDING):
                    tail[state] = after
                    changed = True
    return tail


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _critical(culprit: int, offsets: Ints, order: Ints, index_of: Ints, graph: JobGraph, run: Run, out: Ints) -> int:
    """Collect the indices along the critical path where changes may help; return how many there are.

    At them a job waits for its neighbour on the device, or its message for another one on the link.
    """
    size = 0
    job = culprit
    while job != NOWHERE:
        before = run.cause[job]
        index = index_of[job]
        device = graph.device_of[job // graph.num_microbatches]
        if before != NOWHERE and index > offsets[device] and order[index - 1] == before:
            out[size] = index
            size += 1
        if run.queued[job] != NOWHERE:
            index = index_of[before]
            if index > offsets[graph.device_of[before // graph.num_microbatches]]:
                out[size] = index
                size += 1
            before = run.queued[job]
        job = before
    return size


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_polish(
    offsets: Ints,
    first_order: Ints,
    seconds: Floats,
    graph: JobGraph,
    memory: Memory,
    num_tries: int,
    tolerance: float,
    seed: int,
) -> tuple[Ints, float]:
    """The best order found by moving jobs on the critical path, and its seconds."""
    num_devices, num_jobs, size = len(offsets) - 1, len(graph.device_of) * graph.num_microbatches, len(first_order)
    tail = _tails(first_order, seconds, graph)
    run = new_run(graph, num_devices)
    # Snapshots of runs, at the beginning and at regular intervals: of the current order, and of the change.
    saves = [new_run(graph, num_devices) for _ in range(2 * (size // JOBS_BETWEEN_SAVES + 1))]
    bank = np.zeros(len(saves) // 2, np.int64)
    index_of = np.empty(num_jobs, np.int64)
    critical = np.empty(2 * num_jobs, np.int64)
    order, best_order = first_order.copy(), first_order.copy()
    for index in range(size):
        index_of[order[index]] = index
    begin_run(offsets, order, seconds, graph, run)
    _copy(run, saves[0])
    best = current = np.inf
    state = np.uint64(seed * 2654435769 + 88172645463325252)
    moved_from = moved_to = NOWHERE
    num_critical = 0
    for turn in range(num_tries + 1):
        allowed = np.inf if turn == 0 else current * (1.0 + tolerance * (1.0 - turn / num_tries))
        first = min(moved_from, moved_to)
        ended = turn == 0 or not _passes_a_dependency(order, moved_to, moved_from, graph)
        slot = 0
        if ended:
            if turn > 0:
                device = graph.device_of[order[moved_to] // graph.num_microbatches]
                while slot + 1 < len(bank) and saves[2 * (slot + 1) + bank[slot + 1]].counter[device] < first:
                    slot += 1
                _copy(saves[2 * slot + bank[slot]], run)
            latest_slot = slot
            while ended and latest_slot + 1 < len(bank):
                latest_slot += 1
                ended = advance(
                    offsets,
                    order,
                    seconds,
                    graph,
                    run,
                    latest_slot * JOBS_BETWEEN_SAVES,
                    allowed * (1 + ROUNDING),
                    tail,
                )
                if ended:
                    _copy(run, saves[2 * latest_slot + 1 - bank[latest_slot]])
            ended = ended and advance(offsets, order, seconds, graph, run, size, allowed * (1 + ROUNDING), tail)
        latest, culprit = np.inf, NOWHERE
        if ended:
            latest, culprit = last_moment(run.moment, graph)
        accepted = turn == 0 or (ended and latest <= allowed)
        if accepted and moved_from != NOWHERE:
            device = graph.device_of[order[moved_to] // graph.num_microbatches]
            accepted = _peak(offsets[device], offsets[device + 1], order, memory) <= memory.room[device]
        if not accepted:
            _shift(order, moved_to, moved_from)
        else:
            if not ended:
                break
            for later in range(slot + 1, len(bank)):
                bank[later] = 1 - bank[later]
            for index in range(max(first, 0), max(moved_from, moved_to) + 1):
                index_of[order[index]] = index
            current = latest
            if latest < best:
                best = latest
                best_order[:] = order
            num_critical = _critical(culprit, offsets, order, index_of, graph, run, critical)
        if num_critical == 0:
            break
        state = _next_random(state)
        index = critical[np.int64(state % np.uint64(num_critical))]
        device = graph.device_of[order[index] // graph.num_microbatches]
        state = _next_random(state)
        # Mostly to the neighboring position, at times up to six positions away.
        reach = REACHES[np.int64((state >> np.uint64(8)) % np.uint64(len(REACHES)))]
        if (state >> np.uint64(20)) % np.uint64(2) == np.uint64(0):
            moved_from, moved_to = index, max(index - reach, offsets[device])
        else:
            moved_from, moved_to = index - 1, min(index - 1 + reach, offsets[device + 1] - 1)
        _shift(order, moved_from, moved_to)
    return best_order, best
