"""The compiled estimate of how long an order takes. See estimate.py."""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.schedules.search.job_graph import SAME_DEVICE, JobGraph

NOWHERE = -1


class Run(NamedTuple):
    """The state of a run of all devices in their orders."""

    moment: Floats
    """Over jobs: the end; before the job has run, the earliest start known so far."""
    cause: Ints
    """Over jobs: the job that it waited for."""
    queued: Ints
    """Over jobs: the job whose message was before that of the cause on its link, if the cause's message waited."""
    missing: Ints
    """Over jobs: number of unfinished dependencies."""
    link_free: Floats
    link_last: Ints
    counter: Ints
    """Over devices: the index of the next job in the order."""
    rest: Floats
    """Over devices: seconds of the jobs that have not run."""
    stack: Ints
    """Work list of devices; the last two entries are its length and the number of finished jobs."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def new_run(graph: JobGraph, num_devices: int) -> Run:
    """Memory for a run."""
    num_jobs = len(graph.device_of) * graph.num_microbatches
    return Run(
        np.empty(num_jobs),
        np.empty(num_jobs, np.int32),
        np.empty(num_jobs, np.int32),
        np.empty(num_jobs, np.int32),
        np.empty(graph.num_links),
        np.empty(graph.num_links, np.int64),
        np.empty(num_devices, np.int64),
        np.empty(num_devices),
        np.empty(num_devices + num_jobs + 2, np.int64),
    )


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def begin_run(offsets: Ints, order: Ints, seconds: Floats, graph: JobGraph, run: Run) -> None:
    """Set a run to the beginning of the iteration."""
    num_microbatches = graph.num_microbatches
    for state in range(len(graph.device_of)):
        for job in range(state * num_microbatches, (state + 1) * num_microbatches):
            run.moment[job] = 0.0
            run.cause[job] = NOWHERE
            run.queued[job] = NOWHERE
            run.missing[job] = graph.num_needs[state]
    run.link_free[:] = 0.0
    num_devices = len(offsets) - 1
    for device in range(num_devices):
        run.counter[device] = offsets[device]
        run.stack[device] = device
        run.rest[device] = 0.0
        for index in range(offsets[device], offsets[device + 1]):
            run.rest[device] += seconds[order[index]]
    run.stack[-2] = num_devices
    run.stack[-1] = 0


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def advance(
    offsets: Ints,
    order: Ints,
    seconds: Floats,
    graph: JobGraph,
    run: Run,
    num_done: int,
    limit_s: float,
    tail: Floats,
) -> bool:
    """Run at least until `num_done` jobs are done; False if the devices wait for each other or the limit is passed.

    A run passes the limit if a job ends so late that the rest of its device, or what follows it in other stages
    (`tail`, over states), ends after `limit_s`. It stops between two devices, so that it can be continued.
    """
    num_microbatches = graph.num_microbatches
    moment, cause, queued, missing = run.moment, run.cause, run.queued, run.missing
    counter, stack, rest, link_free, link_last = run.counter, run.stack, run.rest, run.link_free, run.link_last
    size, done = stack[-2], stack[-1]
    while size > 0 and done < num_done:
        size -= 1
        device = stack[size]
        index = counter[device]
        while index < offsets[device + 1]:
            job = order[index]
            if missing[job] > 0:
                break
            state = job // num_microbatches
            microbatch = job - state * num_microbatches
            if index > offsets[device] and moment[order[index - 1]] >= moment[job]:
                moment[job] = moment[order[index - 1]]
                cause[job] = order[index - 1]
                queued[job] = NOWHERE
            now = moment[job] + seconds[job]
            moment[job] = now
            index += 1
            done += 1
            counter[device] = index
            rest[device] -= seconds[job]
            if now + max(rest[device] + graph.closing_s[device], tail[state]) > limit_s:
                return False
            for entry in range(graph.begin[state], graph.begin[state + 1]):
                follower = graph.target[entry] * num_microbatches + microbatch
                arrival = now
                waited_for = NOWHERE
                link = graph.link[entry]
                if link != SAME_DEVICE:
                    if link_free[link] > now:
                        waited_for = link_last[link]
                    free = max(link_free[link], now) + graph.occupancy[entry]
                    link_free[link] = free
                    link_last[link] = job
                    arrival = free + graph.latency[entry]
                if arrival > moment[follower]:
                    moment[follower] = arrival
                    cause[follower] = job
                    queued[follower] = waited_for
                missing[follower] -= 1
                if missing[follower] == 0:
                    other = graph.device_of[graph.target[entry]]
                    if other != device and counter[other] < offsets[other + 1] and order[counter[other]] == follower:
                        stack[size] = other
                        size += 1
    stack[-2] = size
    stack[-1] = done
    return bool(done >= num_done)


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def last_moment(end: Floats, graph: JobGraph) -> tuple[float, int]:
    """The end of the iteration, and the job that it waits for."""
    latest, culprit = -1.0, NOWHERE
    for closing in range(len(graph.closing_s)):
        ready, last = -1.0, NOWHERE
        for entry in range(graph.closing_begin[closing], graph.closing_begin[closing + 1]):
            first = graph.closing_state[entry] * graph.num_microbatches
            for job in range(first, first + graph.num_microbatches):
                if end[job] > ready:
                    ready, last = end[job], job
        if ready + graph.closing_s[closing] > latest:
            latest, culprit = ready + graph.closing_s[closing], last
    return latest, culprit


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def time_order(offsets: Ints, order: Ints, seconds: Floats, graph: JobGraph) -> float:
    """When the iteration ends; inf if the devices wait for each other."""
    run = new_run(graph, len(offsets) - 1)
    begin_run(offsets, order, seconds, graph, run)
    tail = np.zeros(len(graph.device_of))
    if not advance(offsets, order, seconds, graph, run, len(order), np.inf, tail):
        return np.inf
    return float(last_moment(run.moment, graph)[0])
