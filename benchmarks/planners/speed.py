"""Planning times of whole calls, without compilation."""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.planners.cases import profiles
from benchmarks.planners.methods import fastest_auto
from benchmarks.results import Result
from penstock.cluster import load_cluster
from penstock.planners import Problem
from penstock.planners.methods.spp import spp

WARM_UP = "2 x 2 x X @ 100 GB/s / 1.25 GB/s"
SIXTEEN = "4 x 4 x X @ 100 GB/s / 1.25 GB/s"
SIXTY_FOUR = "8 x 8 x X @ 100 GB/s / 1.25 GB/s"
FOUR = ("pipedream/vgg16", "pipedream/resnet50", "pipedream/gnmt", "pipedream/densenet121")


class TimedCase(NamedTuple):
    """A planner on a profile and a cluster, with a time limit."""

    planner: str
    profile: str
    cluster: str
    num_microbatches: int
    limit_s: float
    repeats: int

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return f"{self.planner}: {self.profile} on {self.cluster}, M = {self.num_microbatches}"


ALL = (
    *(TimedCase("spp", name, SIXTEEN, 16, 0.5, 5) for name in FOUR),
    *(TimedCase("auto", name, SIXTEEN, 16, 5.0, 3) for name in FOUR),
    TimedCase("auto", "mixed/vgg416", SIXTY_FOUR, 64, 30.0, 1),
)
QUICK = (*ALL[:4], TimedCase("auto", "pipedream/gnmt", SIXTEEN, 16, 5.0, 1))


class TimedRun(msgspec.Struct, frozen=True):
    """The times of all calls."""

    planner: str
    profile: str
    num_devices: int
    num_microbatches: int
    limit_s: float
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median time."""
        return statistics.median(self.seconds)


def run_timed(item: TimedCase, folder: Path) -> TimedRun:
    """Time a planner, after a call on a small problem that compiles all kernels."""
    cluster = load_cluster(item.cluster)
    method: Callable[[Problem], object] = spp if item.planner == "spp" else _auto
    method(Problem(profiles(folder)["pipedream/gnmt"], load_cluster(WARM_UP), 4))
    seconds = []
    for _ in range(item.repeats):
        # A new problem each time, as it caches what planners compute.
        problem = Problem(profiles(folder)[item.profile], cluster, item.num_microbatches)
        start_time = time.perf_counter()
        method(problem)
        seconds.append(time.perf_counter() - start_time)
    return TimedRun(
        item.planner, item.profile, cluster.num_devices, item.num_microbatches, item.limit_s, tuple(seconds)
    )


def _auto(problem: Problem) -> object:
    return fastest_auto(problem, replication=True)


def check_speed(runs: list[TimedRun]) -> Iterator[Result]:
    """The slowest case of every planner and number of devices."""
    for planner, num_devices, limit_s in dict.fromkeys((run.planner, run.num_devices, run.limit_s) for run in runs):
        chosen = [run for run in runs if (run.planner, run.num_devices) == (planner, num_devices)]
        slowest = max(chosen, key=lambda run: run.median_s)
        what = f"{planner} on {num_devices} devices, slowest of {len(chosen)}"
        measured = f"{slowest.median_s:.2f} s ({slowest.profile})"
        yield Result(what, f"< {limit_s:g} s", measured, slowest.median_s < limit_s)
