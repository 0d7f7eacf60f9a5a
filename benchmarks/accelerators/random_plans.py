"""Random plans on the test device with random delays: no hang, no wrong bit, no race."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from benchmarks.results import Result
from tests.support.late_device import Settings
from tests.support.late_device.build import build
from tests.support.late_device.random_plans import compare
from tests.support.late_device.ranks import GROUP_BACKEND, prepare_rank
from tests.support.late_device.thread_names import thread_names
from tests.support.runtime.rank_pool import RankError, RankPool
from tests.support.strategies import Case, cases

MAX_RANKS = 4
NUM_PLANS = 1000
NUM_QUICK = 20
FIRST_SEED = 1
PLANS_OF_A_PROCESS = 10
"""Ranks are new processes after this number of plans."""
MAX_THREADS = 500


@dataclass
class Count:
    """The plans that have run."""

    plans: int = 0
    exact: int = 0
    """Plans in which all sums are in the order of one process, so that every bit must be equal."""
    faults: list[str] = field(default_factory=list)
    threads: int = 0
    """Most threads of a rank before it was replaced."""


def run_random_plans(num_plans: int, first_seed: int, log: Callable[[str], None]) -> Count:
    """Train by random plans on two to four ranks, each with its own random delays and hardware queues."""
    build()
    count = Count()
    pool = RankPool(backend=GROUP_BACKEND, prepare=prepare_rank)

    @hypothesis.seed(first_seed)
    @hypothesis.settings(
        max_examples=num_plans,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(
        case=cases(max_microbatches=4).filter(lambda case: 2 <= len(case.plan.devices) <= MAX_RANKS),
        num_rows=st.integers(1, 13),
        num_queues=st.sampled_from([1, 8, 32]),
    )
    def run(case: Case, num_rows: int, num_queues: int) -> None:
        settings = Settings(pace="random", seed=count.plans, num_queues=num_queues)
        count.plans += 1
        try:
            count.exact += compare(pool, case, num_rows, settings)
        except (AssertionError, RankError) as error:
            count.faults.append(f"plan {count.plans}, {settings}: {str(error)[:500]}")
            log(count.faults[-1])
        if count.plans % PLANS_OF_A_PROCESS == 0:
            # The test device's groups of gloo may keep their threads after a plan, three for each group.
            count.threads = max(count.threads, *(found.total() for found in pool.run(2, thread_names)))
            pool.close()
        if count.plans % 50 == 0:
            log(f"{count.plans} plans, {len(count.faults)} faults")

    try:
        run()
    finally:
        pool.close()
    return count


def check_random_plans(*, quick: bool) -> Iterator[Result]:
    """Compare random plans with training in one process."""
    num_plans = NUM_QUICK if quick else NUM_PLANS
    count = run_random_plans(num_plans, FIRST_SEED, lambda text: print(text, file=sys.stderr, flush=True))
    yield Result(
        "random plans with random delays: hangs, wrong numbers and races",
        f"0 of {num_plans}",
        f"{len(count.faults)} of {count.plans}, {count.exact} to the bit",
        not count.faults and count.plans >= num_plans and count.exact > 0,
    )
    is_bounded = 0 < count.threads <= MAX_THREADS
    yield Result("threads of a rank", f"<= {MAX_THREADS}", f"{count.threads}", is_bounded)
