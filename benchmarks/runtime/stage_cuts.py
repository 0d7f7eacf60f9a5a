"""Where torch's stages are cut: evenly, and best of all when tried."""

from collections.abc import Callable, Generator
from itertools import combinations, pairwise

from penstock import Profile, Unit

MOST_TRIED = 6
"""Where not all cuts are tried, so many are: those that divide the profiled work best over the ranks."""
HOPELESS = 1.25
"""Cuts whose first tried iteration takes so many times the best so far are not tried further."""


def equal_cuts(num_units: int, num_stages: int, num_ends: int) -> tuple[int, ...]:
    """Stages of equally many layers. `num_ends` units at each end (embedding and head) do not count as layers.

    >>> equal_cuts(10, 2, 1), equal_cuts(10, 4, 1), equal_cuts(16, 2, 0)
    ((5,), (3, 5, 7), (8,))
    """
    num_layers = num_units - 2 * num_ends
    return tuple(num_ends + num_layers * number // num_stages for number in range(1, num_stages))


def cuts_by_evenness(profile: Profile, num_stages: int, ranks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All ways to cut into stages, those that divide the work best first. `ranks` has the rank of each stage."""
    found = combinations(range(1, profile.num_units), num_stages - 1)
    work = [_work_s(unit) for unit in profile.units]

    def busiest(cuts: tuple[int, ...]) -> float:
        loads = [0.0, 0.0]
        for (start, stop), rank in zip(pairwise((0, *cuts, profile.num_units)), ranks, strict=True):
            loads[rank] += sum(work[start:stop])
        return max(loads)

    return sorted(found, key=busiest)


def _work_s(unit: Unit) -> float:
    """Of a whole micro-batch."""
    times = max(unit.times, key=lambda item: item.micro_batch_size)
    return times.forward_s + times.input_grad_s + times.weight_grad_s


def best_cuts(
    candidates: list[tuple[int, ...]], tries: int, run: Callable[[tuple[int, ...]], Generator[float, None, None]]
) -> tuple[int, ...]:
    """The cuts with the least seconds of `tries` iterations; `run` yields those of one after the other."""
    best_s, best = float("inf"), candidates[0]
    for cuts in candidates:
        seconds: list[float] = []
        turns = run(cuts)
        while len(seconds) < tries and min(seconds, default=0.0) < HOPELESS * best_s:
            seconds.append(next(turns))
        turns.close()
        if len(seconds) == tries and min(seconds) < best_s:
            best_s, best = min(seconds), cuts
    return best
