"""Plain Python twins of the compiled feasibility checks of the lower bounds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.arrays import Floats
from penstock.planners.bounds.unreplicated_paths_kernel import SWEEPS


@dataclass(frozen=True)
class Division:
    """The arguments of `is_divisible`, with whole numbers wherever the kernel only adds and compares."""

    local_work: Sequence[int]
    forward: Sequence[int]
    backward: Sequence[int]
    crossing: Sequence[int]
    spread_bytes: Sequence[int]
    release_s: Sequence[int]
    can_spread: Sequence[bool]
    remote_backward: bool
    capacity: int
    pair_bytes: int
    part_bytes: int
    limit_s: int
    all_rate: int

    @property
    def last(self) -> int:
        return len(self.forward) - 1


def is_divisible(case: Division, part_bytes: float) -> bool:
    """Whether some division of the layers meets all limits, by trying every division.

    A division is a sequence of runs: local runs, each in one part, and spread runs between them.
    """
    return any(_can_begin_local(case, part_bytes, 0, 0.0)) or _can_end_spread(case, part_bytes, None, 0, 0.0)


def _can_begin_local(case: Division, part_bytes: float, first: int, left: float) -> Iterator[bool]:
    """For every local run from `first` on: whether some division continues behind it.

    `left` are the bytes in and out of the run's part on its left side.
    """
    for last in range(first, case.last + 1):
        if sum(case.local_work[first : last + 1]) > case.capacity:
            continue
        if last == case.last:
            yield left <= part_bytes
            continue
        between = case.crossing[last]
        if between <= case.pair_bytes and left + 2 * between <= part_bytes:
            yield any(_can_begin_local(case, part_bytes, last + 1, 2 * between))
        yield _can_end_spread(case, part_bytes, last, last + 1, left)


def _can_end_spread(case: Division, part_bytes: float, before: int | None, first: int, left: float) -> bool:
    """Whether some spread run from `first` on, behind the local layer `before`, leads to a division."""
    for last in range(first, case.last + 1):
        layers = range(first, last + 1)
        sent = sum(case.spread_bytes[layer] for layer in layers)
        if not all(case.can_spread[layer] for layer in layers):
            continue
        if sent > (case.limit_s - case.release_s[last]) * case.all_rate:
            continue
        if before is None and last == case.last:
            return True
        neighbours = [layer for layer in (before, last + 1) if layer is not None and layer <= case.last]
        capacity = case.capacity - sum(case.local_work[layer] for layer in neighbours)
        outside = _rows_outside(case, layers, capacity)
        cuts = sorted(case.crossing[cut] for cut in range(max(first - 1, 0), min(last, case.last - 1) + 1))
        if last == case.last:
            if left + outside * cuts[0] <= part_bytes:
                return True
            continue
        # The local layers on both sides are in the same part, or in different ones.
        options = [outside * cuts[0]] if before is None else [left + outside * (cuts[0] + cuts[1])]
        if before is not None and left + 2 * cuts[0] <= part_bytes:
            options.append(2 * cuts[0])
        for entering in options:
            if entering <= part_bytes and any(_can_begin_local(case, part_bytes, last + 1, entering)):
                return True
    return False


def _rows_outside(case: Division, layers: range, capacity: float) -> float:
    """The least rows outside a part with this capacity: a continuous knapsack of forward and backward rows."""
    forward, backward = (sum(work[layer] for layer in layers) for work in (case.forward, case.backward))
    left = max(capacity, 0.0)
    jobs = sorted((forward, backward)) if case.remote_backward else [forward + backward]
    rows = 0.0
    for work in jobs:
        inside = 1.0 if work <= left else left / work
        left = max(0.0, left - work)
        rows += (1.0 - inside) * (2 / len(jobs))
    return rows


@dataclass(frozen=True)
class Narrowed:
    """The result of `narrow`, and where it stopped."""

    is_possible: bool
    sweep: int = SWEEPS
    lacks_forward: bool = False
    """Whether a layer has no device left for its forward, else for its backward."""


@dataclass(frozen=True, eq=False)
class Chain:
    """The arguments of `narrow` besides the paths."""

    jobs: Floats
    step: Floats
    cut: Floats
    turn_bytes: float
    net: Floats
    num_microbatches: int
    remote_backward: bool
    limit_s: float

    @property
    def devices(self) -> range:
        return range(self.jobs.shape[2])

    @property
    def last(self) -> int:
        return len(self.cut) - 1


FORWARD, BACKWARD = 0, 1


def narrow(paths: Floats, chain: Chain) -> Narrowed:
    """Tighten the shortest paths, changed in place, one job and one link at a time."""
    for sweep in range(SWEEPS):
        for unit in range(chain.last + 1):
            fits = [_fits(paths, chain, unit, device) for device in chain.devices]
            for device, sides in enumerate(fits):
                for side, is_possible in enumerate(sides):
                    if not is_possible:
                        paths[2 * side : 2 * side + 2, unit, device] = math.inf
            for side in (FORWARD, BACKWARD):
                if not any(math.isfinite(value) for value in paths[2 * side, unit]):
                    return Narrowed(False, sweep, side == FORWARD)
        _follow(paths, chain)
    return Narrowed(True)


def _fits(paths: Floats, chain: Chain, unit: int, device: int) -> tuple[bool, bool]:
    """Whether a device can run the forward of a layer in time, and its backward."""
    num, limit_s = chain.num_microbatches, chain.limit_s
    f, i, w = (float(value) for value in chain.jobs[:, unit, device])
    step = float(chain.step[unit, device])
    before_f, after_f, before_i, after_i = (float(value) for value in paths[:, unit, device])
    forward = before_f + num * f + after_f <= limit_s
    backward = before_i + num * i + after_i <= limit_s and before_i + num * (i + w) + step <= limit_s
    if chain.remote_backward:
        return forward, backward
    together = before_f + num * (f + i)
    both = forward and backward and together + after_i <= limit_s and together + num * w + step <= limit_s
    return both, both


def _follow(paths: Floats, chain: Chain) -> None:
    """Recompute the paths before every job, in the order of the chain, and behind every job, in reverse order."""
    order = [(FORWARD, unit) for unit in range(chain.last + 1)]
    order += [(BACKWARD, unit) for unit in range(chain.last, -1, -1)]
    links = [
        (one, other, chain.turn_bytes if one[0] != other[0] else float(chain.cut[min(one[1], other[1])]))
        for one, other in pairwise(order)
    ]
    for one, other, num_bytes in links:
        for target in chain.devices:
            times = [
                _time(paths, chain, one, source)
                + num_bytes * float(chain.net[1, source, target])
                + float(chain.net[0, source, target])
                for source in chain.devices
                if _is_usable(paths, chain, one, source, other, target, num_bytes)
            ]
            row = 2 * other[0], other[1], target
            paths[row] = max(float(paths[row]), min(times, default=math.inf))
    for one, other, num_bytes in reversed(links):
        for source in chain.devices:
            times = [
                num_bytes * float(chain.net[1, source, target]) + _rest(paths, chain, source, other, target)
                for target in chain.devices
                if _is_usable(paths, chain, one, source, other, target, num_bytes)
            ]
            row = 2 * one[0] + 1, one[1], source
            paths[row] = max(float(paths[row]), min(times, default=math.inf))


def _time(paths: Floats, chain: Chain, job: tuple[int, int], device: int) -> float:
    """The earliest end of a job on a device."""
    return float(paths[2 * job[0], job[1], device]) + float(chain.jobs[job[0], job[1], device])


def _rest(paths: Floats, chain: Chain, source: int, job: tuple[int, int], target: int) -> float:
    """The latency of a message to a job, the job, and the path behind it."""
    latency = float(chain.net[0, source, target])
    return latency + float(chain.jobs[job[0], job[1], target]) + float(paths[2 * job[0] + 1, job[1], target])


def _is_usable(
    paths: Floats, chain: Chain, one: tuple[int, int], source: int, other: tuple[int, int], target: int, size: float
) -> bool:
    """Whether all messages from one job to the next can use a link in time."""
    done = _time(paths, chain, one, source)
    if not math.isfinite(done):
        return False
    sent = chain.num_microbatches * (size * float(chain.net[1, source, target]))
    return done + sent + _rest(paths, chain, source, other, target) <= chain.limit_s
