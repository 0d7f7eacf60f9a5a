"""Compiled paths of `unreplicated.py`: which device can run which job within a time limit.

Import this module lazily: it compiles with numba. In all signatures, `num` is the number of micro-batches.
`tests/support/plain_bounds.py` holds the plain twin.
"""

from typing import NamedTuple

import numba
import numpy as np

from penstock.arrays import Floats

SWEEPS = 3
"""How often `narrow` recomputes the shortest paths without the jobs and transfers that it found to be impossible."""


class Chain(NamedTuple):
    """The layers of a problem and the devices that may run them."""

    jobs: Floats
    """[F, I, W][unit, device] seconds."""
    step: Floats
    """[unit, device] seconds of the optimizer step."""
    cut: Floats
    """[unit] bytes behind each unit."""
    turn_bytes: float
    """Bytes from the last forward to the first backward."""
    net: Floats
    """[latency, seconds per byte][source, target]."""
    num_microbatches: int
    remote_backward: bool
    """Whether forward and backward of a unit may be on different devices."""


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _earliest_arrival(
    before: Floats,
    job: Floats,
    num_bytes: float,
    num: int,
    next_job: Floats,
    after: Floats,
    net: Floats,
    limit_s: float,
) -> Floats:
    """The earliest arrival of a micro-batch at each device of the next job; inf if no transfer meets the limit."""
    earliest = np.full(len(next_job), np.inf)
    for source in range(len(job)):
        done = before[source] + job[source]
        if done == np.inf:
            continue
        for target in range(len(next_job)):
            once = num_bytes * net[1, source, target]
            if done + num * once + net[0, source, target] + next_job[target] + after[target] <= limit_s:
                earliest[target] = min(earliest[target], done + once + net[0, source, target])
    return earliest


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def _least_remainder(
    before: Floats,
    job: Floats,
    num_bytes: float,
    num: int,
    next_job: Floats,
    after: Floats,
    net: Floats,
    limit_s: float,
) -> Floats:
    """The least time that must follow the job on each device; inf if no transfer meets the limit."""
    least = np.full(len(job), np.inf)
    for source in range(len(job)):
        done = before[source] + job[source]
        if done == np.inf:
            continue
        for target in range(len(next_job)):
            once = num_bytes * net[1, source, target]
            rest = net[0, source, target] + next_job[target] + after[target]
            if done + num * once + rest <= limit_s:
                least[source] = min(least[source], once + rest)
    return least


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def narrow(paths: Floats, chain: Chain, limit_s: float) -> bool:
    """Tighten the shortest paths for plans that take at most `limit_s` seconds.

    A device that cannot run a job in time leaves the paths of that job, and so do transfers that cannot finish in time.
    Each sweep may make more of them impossible.

    Args:
        paths: [F before, F after, I before, I after][unit, device]; changed in place.
        chain: The layers and the devices.
        limit_s: The iteration time in question.

    Returns:
        False as soon as some unit has no device left for its forward or for its backward. Later sweeps would fail too.
    """
    forward, input_grad, weight_grad = chain.jobs[0], chain.jobs[1], chain.jobs[2]
    step, cut, turn_bytes, net = chain.step, chain.cut, chain.turn_bytes, chain.net
    num, remote_backward = chain.num_microbatches, chain.remote_backward
    last = len(cut) - 1
    for _ in range(SWEEPS):
        for unit in range(last + 1):
            is_possible = False
            for device in range(len(net[0])):
                f, i, w = forward[unit, device], input_grad[unit, device], weight_grad[unit, device]
                forward_fits = paths[0, unit, device] + num * f + paths[1, unit, device] <= limit_s
                backward_fits = paths[2, unit, device] + num * i + paths[3, unit, device] <= limit_s
                backward_fits = backward_fits and paths[2, unit, device] + num * (i + w) + step[unit, device] <= limit_s
                if not remote_backward:
                    both = paths[0, unit, device] + num * (f + i)
                    forward_fits = backward_fits = (
                        forward_fits
                        and backward_fits
                        and both + paths[3, unit, device] <= limit_s
                        and both + num * w + step[unit, device] <= limit_s
                    )
                if not forward_fits:
                    paths[0, unit, device] = paths[1, unit, device] = np.inf
                if not backward_fits:
                    paths[2, unit, device] = paths[3, unit, device] = np.inf
                is_possible = is_possible or forward_fits
            if not is_possible or not (paths[2, unit] < np.inf).any():
                return False
        for unit in range(1, last + 1):
            bound = _earliest_arrival(
                paths[0, unit - 1], forward[unit - 1], cut[unit - 1], num, forward[unit], paths[1, unit], net, limit_s
            )
            paths[0, unit] = np.maximum(paths[0, unit], bound)
        bound = _earliest_arrival(
            paths[0, last], forward[last], turn_bytes, num, input_grad[last], paths[3, last], net, limit_s
        )
        paths[2, last] = np.maximum(paths[2, last], bound)
        for unit in range(last - 1, -1, -1):
            bound = _earliest_arrival(
                paths[2, unit + 1], input_grad[unit + 1], cut[unit], num, input_grad[unit], paths[3, unit], net, limit_s
            )
            paths[2, unit] = np.maximum(paths[2, unit], bound)
        for unit in range(1, last + 1):
            bound = _least_remainder(
                paths[2, unit],
                input_grad[unit],
                cut[unit - 1],
                num,
                input_grad[unit - 1],
                paths[3, unit - 1],
                net,
                limit_s,
            )
            paths[3, unit] = np.maximum(paths[3, unit], bound)
        bound = _least_remainder(
            paths[0, last], forward[last], turn_bytes, num, input_grad[last], paths[3, last], net, limit_s
        )
        paths[1, last] = np.maximum(paths[1, last], bound)
        for unit in range(last - 1, -1, -1):
            bound = _least_remainder(
                paths[0, unit], forward[unit], cut[unit], num, forward[unit + 1], paths[1, unit + 1], net, limit_s
            )
            paths[1, unit] = np.maximum(paths[1, unit], bound)
    return True
