"""Unequal ranks: the compiled division equals the plain one, the best of all, and ranks meet their limits."""

import random
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.planners.auto.folding.memory_stages import Chain, Limits, Rank, divide, divide_plain, memory_stages
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.thoroughness import examples

COUNTS = [1, 2]


def _chain(draw: random.Random, size: int) -> Chain:
    def sums(most: int) -> np.ndarray:
        values = np.array([draw.randint(1, most) for _ in range(size)], dtype=np.float64)
        return np.stack([np.concatenate([[0.0], np.cumsum(values / count)]) for count in COUNTS])

    inputs = np.array([draw.randint(0, 1) for _ in range(size + 1)], dtype=np.float64)
    static = sums(2)
    static[1] = static[0]  # every replica has all parameters
    return Chain(sums(6), sums(2), sums(8), static, np.stack([inputs, inputs / 2]), np.zeros((2, size + 1)))


def _needed(chain: Chain, start: int, rank: Rank, kept: float) -> tuple[float, float]:
    """Seconds and bytes of a rank."""
    index = COUNTS.index(rank.replicas)
    work, forward, saved, static = (sums[index, rank.stop] - sums[index, start] for sums in chain[:4])
    inputs = chain.starting[index, start]
    if rank.recompute:
        return work + forward, static + kept * inputs + saved
    return work, static + kept * saved


def _best(chain: Chain, start: int, left: int, limits: Limits) -> float:
    """The least sum of seconds, by trying everything, where all ranks keep the same number of micro-batches."""
    size = chain.work.shape[1] - 1
    if start == size:
        return 0.0
    best = float("inf")
    for stop, count, recompute in product(range(start + 1, size + 1), COUNTS, (False, True)):
        seconds, num_bytes = _needed(chain, start, Rank(stop, count, recompute), limits.kept)
        if count <= left and seconds <= limits.seconds and num_bytes <= limits.bytes:
            best = min(best, seconds + _best(chain, stop, left - count, limits))
    return best


def test_divide() -> None:
    @reaches(divided=0.1, none=0.1, recomputed=0.03, replicated=0.03)
    @examples(80)
    @given(st.integers(0, 2**32), st.booleans())
    def check(seed: int, is_v: bool) -> None:
        draw = random.Random(seed)
        size, num = draw.randint(2, 3), 3
        chain = _chain(draw, size)
        kept = (float(draw.randint(1, 3)), 0.0) if is_v else (1.0, 1.0)
        limits = Limits(draw.uniform(2, 14), draw.uniform(4, 30), 4, *kept)
        ranks = divide(chain, COUNTS, [False, True], num, limits)
        assert ranks == divide_plain(chain, COUNTS, [False, True], num, limits)
        reach("none", ranks is None)
        if is_v:
            best = _best(chain, 0, num, limits)
            assert (ranks is None) == (best == float("inf"))
        if ranks is None:
            return
        reach("divided", len(ranks) > 1)
        reach("recomputed", any(rank.recompute for rank in ranks))
        reach("replicated", any(rank.replicas > 1 for rank in ranks))
        assert ranks[-1].stop == size
        assert sum(rank.replicas for rank in ranks) <= num
        starts = [0, *(rank.stop for rank in ranks[:-1])]
        needed = [_needed(chain, start, rank, 1.0) for start, rank in zip(starts, ranks, strict=True)]
        assert all(seconds <= limits.seconds and num_bytes <= limits.bytes for seconds, num_bytes in needed)
        if is_v:
            assert abs(sum(seconds for seconds, _ in needed) - best) < 1e-9

    check()


def test_plans_are_within_the_search_space() -> None:
    problem = Problem(equal_profile(7, saved_bytes=20, parameter_bytes=10), one_host(6, memory_bytes=300), 3)
    spaces = [
        SearchSpace(),
        SearchSpace(virtual_stages=False),
        SearchSpace(recomputation=False),
        SearchSpace(part_recomputation=False),
    ]
    for space in spaces:
        plans = list(memory_stages(problem, space))
        assert plans
        assert all(space.allow(plan, problem.cluster) for plan in plans)
    assert not list(memory_stages(problem, SearchSpace(unequal_replicas=False)))
