"""Cuts of torch's stages: equal numbers of layers, and the fastest of those tried."""

from collections.abc import Callable, Generator
from itertools import combinations, pairwise

from penstock import Profile, Unit

MAX_TRIED = 6
"""The number of cuts to try where there are too many; those that balance the profiled work best."""
HOPELESS = 1.25
"""Cuts whose first iteration takes this factor longer than the best so far are dropped."""


def equal_cuts(num_units: int, num_stages: int, num_ends: int) -> tuple[int, ...]:
    """Cuts into stages of equally many layers; `num_ends` units at each end (embedding and head) do not count.

    >>> equal_cuts(10, 2, 1), equal_cuts(10, 4, 1), equal_cuts(16, 2, 0)
    ((5,), (3, 5, 7), (8,))
    """
    num_layers = num_units - 2 * num_ends
    return tuple(num_ends + num_layers * number // num_stages for number in range(1, num_stages))


def cuts_by_evenness(profile: Profile, num_stages: int, ranks: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All cuts into stages, the most balanced first. `ranks` is the rank of each stage."""
    cuts = combinations(range(1, profile.num_units), num_stages - 1)
    work = [_work_s(unit) for unit in profile.units]

    def busiest(cuts: tuple[int, ...]) -> float:
        loads = [0.0, 0.0]
        for (start, stop), rank in zip(pairwise((0, *cuts, profile.num_units)), ranks, strict=True):
            loads[rank] += sum(work[start:stop])
        return max(loads)

    return sorted(cuts, key=busiest)


def _work_s(unit: Unit) -> float:
    """The compute time of a micro-batch."""
    times = max(unit.times, key=lambda item: item.micro_batch_size)
    return times.forward_s + times.input_grad_s + times.weight_grad_s


def best_cuts(
    candidates: list[tuple[int, ...]], tries: int, run: Callable[[tuple[int, ...]], Generator[float, None, None]]
) -> tuple[int, ...]:
    """The cuts with the fastest of `tries` iterations. `run` yields iteration times."""
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
