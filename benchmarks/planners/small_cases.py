"""Small random cases: `auto` and the lower bounds against the exact solution."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.planners.clusters import random_links
from benchmarks.planners.methods import fastest_auto
from benchmarks.results import Result
from penstock.cluster import Cluster, Device, Host, Wire
from penstock.planners import Problem
from penstock.planners.bounds import lower_bound
from penstock.planners.exact import exact
from penstock.profile import Profile, Sizes, Times, Unit
from penstock.simulate import evaluate

ROUNDING = 1e-9
MAX_EXACT_S = 120.0


class SmallCase(NamedTuple):
    """A random case, determined by its seed and its sizes."""

    seed: int
    num_devices: int
    num_units: int
    num_microbatches: int

    @property
    def size(self) -> str:
        """The name in tables and messages."""
        return f"{self.num_devices} devices, {self.num_units} layers, M = {self.num_microbatches}"

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return f"small case {self.seed}: {self.size}"


ALL = tuple(
    SmallCase(seed, *size)
    for size, count in (((3, 6, 3), 100), ((3, 7, 4), 20), ((3, 8, 4), 10))
    for seed in range(count)
)
QUICK = (SmallCase(0, 3, 6, 3), SmallCase(3, 3, 6, 3))


class SmallRun(msgspec.Struct, frozen=True):
    """The exact solution, the plan of `auto`, and the bounds with and without replication."""

    title: str
    size: str
    exact_s: float
    proved: bool
    exact_took_s: float
    num_solved: int
    auto_s: float
    auto_took_s: float
    straight_bound_s: float
    bound_s: float


def small_problem(case: SmallCase) -> Problem:
    """Unequal layers, devices and links; every device has its own time for every layer."""
    random = np.random.default_rng([case.num_devices, case.num_units, case.num_microbatches, case.seed])
    kinds = [f"k{index}" for index in range(case.num_devices)]

    def times(kind: str) -> Times:
        forward, input_grad, weight_grad = random.uniform(1, 10, 3).tolist()
        return Times(
            kind=kind, micro_batch_size=1, forward_s=forward, input_grad_s=input_grad, weight_grad_s=weight_grad
        )

    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=int(random.integers(0, 50)),
            sizes=(
                Sizes(
                    micro_batch_size=1, cut_bytes=int(random.integers(1, 100)), saved_bytes=int(random.integers(1, 300))
                ),
            ),
            times=tuple(times(kind) for kind in kinds),
        )
        for number in range(case.num_units)
    )
    devices = tuple(Device(name=f"d{index}", host="h", kind=kind) for index, kind in enumerate(kinds))
    links = random_links(devices, random, bandwidth=(10.0, 300.0), latency_s=(0.0, 1.0))
    wire = Wire(bandwidth=100.0)
    cluster = Cluster(name="small", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire, links=links)
    return Problem(Profile(name="small", micro_batch_size=1, units=units), cluster, case.num_microbatches)


def run_small(case: SmallCase) -> SmallRun:
    """Solve one case exactly, and plan it with `auto`."""
    problem = small_problem(case)
    start_time = time.perf_counter()
    best = exact(problem, seconds=MAX_EXACT_S)
    solved = time.perf_counter()
    plan = fastest_auto(problem, replication=False)
    planned = time.perf_counter()
    profile, cluster, num = problem.profile, problem.cluster, problem.num_microbatches
    return SmallRun(
        title=case.title,
        size=case.size,
        exact_s=best.makespan_s,
        proved=best.proved,
        exact_took_s=solved - start_time,
        num_solved=best.num_solved,
        auto_s=evaluate(plan, profile, cluster).timeline.iteration_s,
        auto_took_s=planned - solved,
        straight_bound_s=lower_bound(profile, cluster, num, replication=False).seconds,
        bound_s=lower_bound(profile, cluster, num).seconds,
    )


def check_exact(runs: list[SmallRun]) -> Iterator[Result]:
    """The targets, over the cases whose exact solution is proved."""
    proved = [run for run in runs if run.proved]
    if not proved:
        yield Result(f"small cases that exact proved, of {len(runs)}", "some", "none", False)
        return
    ratios = [run.auto_s / run.exact_s for run in proved]
    near = sum(ratio <= 1.01 for ratio in ratios) / len(ratios)
    yield Result(f"auto within 1 % of exact, {len(proved)} small cases", ">= 95 %", f"{near:.1%}", near >= 0.95)
    worst = f"{max(ratios) - 1:.1%} above at worst"
    yield Result(f"auto within 5 % of exact, {len(proved)} small cases", "all", worst, max(ratios) <= 1.05)
    above = sum(max(run.straight_bound_s, run.bound_s) > run.exact_s * (1 + ROUNDING) for run in proved)
    yield Result("bounds above exact", "none", f"{above} of {len(proved)}", above == 0)
    above = sum(max(run.straight_bound_s, run.bound_s) > run.auto_s * (1 + ROUNDING) for run in runs)
    yield Result("bounds above the plan of auto", "none", f"{above} of {len(runs)}", above == 0)
