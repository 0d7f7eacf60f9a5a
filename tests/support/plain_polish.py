"""The plain twin of the local search over orders: every change is timed from beginning to end."""

from collections import deque
from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.schedules.search.job_graph import SAME_DEVICE, JobGraph
from penstock.schedules.search.polish_kernel import REACHES, Memory

NOWHERE = -1
MASK = (1 << 64) - 1


class Timed(NamedTuple):
    seconds: float
    culprit: int
    cause: list[int]
    queued: list[int]


def plain_time(offsets: Ints, order: list[int], seconds: Floats, graph: JobGraph) -> Timed | None:
    """The time of an order, the job that ends it, and what each job waited for; None if devices wait for each other."""
    num, num_jobs = graph.num_microbatches, len(graph.device_of) * graph.num_microbatches
    start, end = [0.0] * num_jobs, [0.0] * num_jobs
    cause, queued = [NOWHERE] * num_jobs, [NOWHERE] * num_jobs
    missing = [int(graph.num_needs[job // num]) for job in range(num_jobs)]
    link_free, link_last = [0.0] * graph.num_links, [NOWHERE] * graph.num_links
    counter, stack = [int(value) for value in offsets[:-1]], deque(range(len(offsets) - 1))
    while stack:
        device = stack.pop()
        while counter[device] < offsets[device + 1] and missing[order[counter[device]]] == 0:
            index = counter[device]
            job = order[index]
            state, microbatch = divmod(job, num)
            if index > offsets[device] and end[order[index - 1]] >= start[job]:
                start[job], cause[job], queued[job] = end[order[index - 1]], order[index - 1], NOWHERE
            end[job] = now = start[job] + float(seconds[job])
            counter[device] += 1
            for entry in range(graph.begin[state], graph.begin[state + 1]):
                follower = int(graph.target[entry]) * num + microbatch
                link = int(graph.link[entry])
                arrival, waited_for = now, NOWHERE
                if link != SAME_DEVICE:
                    waited_for = link_last[link] if link_free[link] > now else NOWHERE
                    link_free[link] = max(link_free[link], now) + float(graph.occupancy[entry])
                    link_last[link] = job
                    arrival = link_free[link] + float(graph.latency[entry])
                if arrival > start[follower]:
                    start[follower], cause[follower], queued[follower] = arrival, job, waited_for
                missing[follower] -= 1
                other = int(graph.device_of[graph.target[entry]])
                at_front = counter[other] < offsets[other + 1] and order[counter[other]] == follower
                if missing[follower] == 0 and other != device and at_front:
                    stack.append(other)
    if counter != [int(value) for value in offsets[1:]]:
        return None
    latest, culprit = -1.0, NOWHERE
    for closing, seconds_after in enumerate(graph.closing_s.tolist()):
        ready, last = -1.0, NOWHERE
        for state in graph.closing_state[graph.closing_begin[closing] : graph.closing_begin[closing + 1]].tolist():
            for job in range(state * num, (state + 1) * num):
                if end[job] > ready:
                    ready, last = end[job], job
        if ready + seconds_after > latest:
            latest, culprit = ready + seconds_after, last
    return Timed(latest, culprit, cause, queued)


def plain_polish(
    offsets: Ints,
    first_order: Ints,
    seconds: Floats,
    graph: JobGraph,
    memory: Memory,
    num_tries: int,
    tolerance: float,
    seed: int,
) -> tuple[list[int], float]:
    """The best order found by moving jobs that stand on the critical path, and its seconds."""
    order = [int(job) for job in first_order]
    best_order, best, current = list(order), np.inf, np.inf
    random = (seed * 2654435769 + 88172645463325252) & MASK
    critical: list[int] = []
    moved: tuple[int, int] | None = None
    for turn in range(num_tries + 1):
        timed = plain_time(offsets, order, seconds, graph)
        allowed = current * (1.0 + tolerance * (1.0 - turn / num_tries))
        accepted = moved is None or (timed is not None and timed.seconds <= allowed)
        if moved is not None and accepted:
            device = int(graph.device_of[order[moved[1]] // graph.num_microbatches])
            accepted = _peak(order[offsets[device] : offsets[device + 1]], memory) <= memory.room[device]
        if moved is not None and not accepted:
            order.insert(moved[0], order.pop(moved[1]))
        else:
            if timed is None:
                break
            current = timed.seconds
            if current < best:
                best, best_order = current, list(order)
            critical = _critical(timed, offsets, order, graph)
        if not critical:
            break
        random = _next_random(random)
        index = critical[random % len(critical)]
        device = int(graph.device_of[order[index] // graph.num_microbatches])
        random = _next_random(random)
        reach = REACHES[(random >> 8) % len(REACHES)]
        if (random >> 20) % 2 == 0:
            moved = index, max(index - reach, int(offsets[device]))
        else:
            moved = index - 1, min(index - 1 + reach, int(offsets[device + 1]) - 1)
        order.insert(moved[1], order.pop(moved[0]))
    return best_order, best


def _critical(timed: Timed, offsets: Ints, order: list[int], graph: JobGraph) -> list[int]:
    index_of = {job: index for index, job in enumerate(order)}
    found = []

    def is_first(job: int) -> bool:
        return index_of[job] == int(offsets[graph.device_of[job // graph.num_microbatches]])

    job = timed.culprit
    while job != NOWHERE:
        before = timed.cause[job]
        if before != NOWHERE and not is_first(job) and order[index_of[job] - 1] == before:
            found.append(index_of[job])
        if timed.queued[job] != NOWHERE:
            if not is_first(before):
                found.append(index_of[before])
            before = timed.queued[job]
        job = before
    return found


def _peak(jobs: list[int], memory: Memory) -> float:
    held = peak = 0.0
    for job in jobs:
        held += memory.before[job]
        peak = max(peak, held)
        held += memory.after[job]
    return peak


def _next_random(state: int) -> int:
    state ^= (state << 13) & MASK
    state ^= state >> 7
    return state ^ ((state << 17) & MASK)
