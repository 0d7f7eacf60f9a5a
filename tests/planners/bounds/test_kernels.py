"""The compiled feasibility checks of the lower bounds equal their plain twins."""

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrays import Floats
from penstock.planners.bounds import unreplicated_paths_kernel
from penstock.planners.bounds.chain import turn_bytes
from penstock.planners.bounds.network_kernel import Layers, Limits, is_divisible
from penstock.planners.bounds.unit_seconds import UnitTimes, unit_times
from penstock.planners.bounds.unreplicated import UnreplicatedProblem
from penstock.planners.bounds.unreplicated_paths_kernel import SWEEPS, narrow
from tests.support import plain_bounds
from tests.support.plain_bounds import Chain, Division
from tests.support.planner_cases import unequal
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

CASES_PER_SEED = 80
NUM_PROBLEMS = 120


def division(draw: random.Random) -> Division:
    """Few layers and small numbers; often the outer layers must be local, so that runs lie between local layers."""
    count = draw.randint(1, 5)

    def numbers(most: int) -> list[int]:
        return [draw.randint(0, most) for _ in range(count)]

    can_spread = [value > 0 for value in numbers(6)]
    if draw.random() < 0.5:
        can_spread[0] = can_spread[-1] = False
    return Division(
        local_work=numbers(draw.choice([1, 4])),
        forward=numbers(4),
        backward=numbers(4),
        crossing=numbers(6),
        spread_bytes=numbers(2),
        release_s=numbers(1),
        can_spread=can_spread,
        remote_backward=draw.random() < 0.5,
        capacity=draw.randint(0, 8),
        pair_bytes=draw.randint(0, 8),
        part_bytes=draw.randint(0, 12),
        limit_s=draw.randint(1, 5),
        all_rate=draw.randint(1, 6),
    )


def test_is_divisible() -> None:
    @reaches(local_divisible=0.5, local_indivisible=0.5, remote_divisible=0.5, remote_indivisible=0.5)
    @examples(1000)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        draw = random.Random(seed)
        for case in (division(draw) for _ in range(CASES_PER_SEED)):
            value = compiled_is_divisible(case)
            # The kernel divides: within rounding of the limit either answer is right.
            assert plain_bounds.is_divisible(case, case.part_bytes - 1e-9) <= value, case
            assert value <= plain_bounds.is_divisible(case, case.part_bytes + 1e-9), case
            where = "remote" if case.remote_backward else "local"
            reach(f"{where}_divisible" if value else f"{where}_indivisible")

    check()


def compiled_is_divisible(case: Division) -> bool:
    layers = Layers(
        local_work=np.array(case.local_work, dtype=np.float64),
        forward=np.array(case.forward, dtype=np.float64),
        backward=np.array(case.backward, dtype=np.float64),
        crossing=np.array(case.crossing, dtype=np.float64),
        spread_bytes=np.array(case.spread_bytes, dtype=np.float64),
        release_s=np.array(case.release_s, dtype=np.float64),
        can_spread=np.array(case.can_spread),
    )
    limits = [case.limit_s, case.capacity, case.pair_bytes, case.part_bytes, case.all_rate]
    return bool(is_divisible(layers, Limits(*map(float, limits)), case.remote_backward))


def chain_of(arrays: UnreplicatedProblem, times: UnitTimes, limit_s: float) -> Chain:
    return Chain(
        jobs=arrays.jobs,
        step=arrays.step,
        cut=times.cut_bytes,
        turn_bytes=turn_bytes(times),
        net=arrays.net,
        num_microbatches=times.num_microbatches,
        remote_backward=arrays.remote_backward,
        limit_s=limit_s,
    )


def compiled_narrow(paths: Floats, chain: Chain) -> bool:
    arguments = unreplicated_paths_kernel.Chain(
        jobs=chain.jobs,
        step=chain.step,
        cut=chain.cut,
        turn_bytes=chain.turn_bytes,
        net=chain.net,
        num_microbatches=chain.num_microbatches,
        remote_backward=chain.remote_backward,
    )
    return bool(narrow(paths, arguments, chain.limit_s))


def test_narrow() -> None:
    """Near the least feasible limit, where it takes several sweeps to find that a job has no device left."""
    reached: Counter[tuple[int, bool]] = Counter()
    for seed in range(NUM_PROBLEMS):
        draw = random.Random(seed)
        times = unit_times(unequal(seed, draw.randint(2, 6), draw.randint(2, 4), draw.randint(1, 4)))
        for remote_backward in (True, False):
            arrays = UnreplicatedProblem(times, remote_backward=remote_backward)
            low, high = 0.0, float(arrays.work[2].sum() / arrays.price.max()) * 20
            while high - low > 1e-9 * high:
                middle = (low + high) / 2
                is_possible = compiled_narrow(arrays.paths.copy(), chain_of(arrays, times, middle))
                low, high = (low, middle) if is_possible else (middle, high)
            for limit_s in (low, 0.999 * low, 0.99 * low, high):
                chain = chain_of(arrays, times, limit_s)
                paths, plain_paths = arrays.paths.copy(), arrays.paths.copy()
                result = plain_bounds.narrow(plain_paths, chain)
                assert compiled_narrow(paths, chain) == result.is_possible
                assert np.array_equal(paths, plain_paths)
                reached[result.sweep, result.lacks_forward] += 1
    # It stops in every sweep, because a forward or, with remote backwards, a backward has no device left.
    assert all(reached[sweep, True] >= 3 for sweep in range(SWEEPS)), reached
    assert all(reached[sweep, False] >= 3 for sweep in range(SWEEPS - 1)), reached
    assert reached[SWEEPS, False] >= 100
