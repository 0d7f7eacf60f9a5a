"""Part messages: plans run to the end wherever hosts wait for their devices, and lose no time by it.

Every plan is lowered as it is, and with receives up to two micro-batches ahead. Both run on devices with streams and
hardware queues, whose hosts wait for the whole device around every compute action.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.results import Result
from penstock.cluster import load_cluster
from penstock.errors import PenstockError
from penstock.plan.pricing import Costs, price
from penstock.planners import plan
from penstock.profile import load_profile
from penstock.program import Program
from penstock.program.lowering import lower, place_messages
from penstock.program.proof import memory_use, prove
from penstock.schedules import schedule
from penstock.simulate import simulate, simulate_plainly
from tests.support.hardware_queues import everywhere, nowhere, runs_to_the_end

NUM_MICROBATCHES = 6
CLUSTERS = ("2 x 2 x A100-40 @ 100 GB/s / 1.25 GB/s", "4 x A100-40 @ 10 GB/s")
PLANNERS = ("uniform", "balanced", "dapple", "spp", "bipartition", "auto")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_v")


def check_messages(*, quick: bool) -> Iterator[Result]:
    """The order of messages on all plans of these planners and schedules."""
    cases = list(_plans(quick=quick))
    num = len(cases)
    runs = hangs = same = 0
    ratios: list[float] = []
    for costs, program in cases:
        ahead, lowered = place_messages(program, costs), lower(program, costs)
        proof = prove(lowered, costs, within_memory=False)
        runs += all(runs_to_the_end(lowered, costs, queues, everywhere) for queues in (1, 2, 8))
        hangs += not (runs_to_the_end(ahead, costs, 8, everywhere) and runs_to_the_end(ahead, costs, 1, nowhere))
        same += simulate(proof).iteration_s == float(np.max(simulate_plainly(ahead, costs)[1]))
        before = memory_use(ahead, costs).peak(ahead, costs)
        ratios.append(float((proof.peak_bytes / np.maximum(before, 1.0)).max()))
    yield Result("plans that run wherever hosts wait, with 1, 2 and 8 queues", "all", f"{runs} of {num}", runs == num)
    yield Result("the same with receives two micro-batches ahead", "some hang", f"{hangs} of {num} hang", hangs > 0)
    yield Result("iteration time as with receives ahead, to the bit", "all", f"{same} of {num}", same == num)
    median, worst = float(np.median(ratios)), max(ratios)
    measured = f"median {median:.4f}, worst {worst:.4f}"
    yield Result("peak memory relative to receives ahead", "worst <= 1.01", measured, worst <= 1.01)


def _plans(*, quick: bool) -> Iterator[tuple[Costs, Program]]:
    profile = load_profile("gpt2-medium", kinds=["A100-40"], micro_batch_size=4)
    for text, planner, name in product(CLUSTERS[: 1 if quick else None], PLANNERS[:: 3 if quick else 1], SCHEDULES):
        cluster = load_cluster(text)
        try:
            made = plan(profile, cluster, NUM_MICROBATCHES, planner=planner, schedule=name)
        except PenstockError:
            # Not every planner makes plans for every schedule.
            continue
        costs = price(made, profile, cluster)
        yield costs, schedule(costs)
