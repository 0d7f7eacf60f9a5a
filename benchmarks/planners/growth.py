"""Growth of planning time with layers, devices and micro-batches."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.planners.methods import fastest_auto
from penstock.cluster import load_cluster
from penstock.planners import Problem
from penstock.planners.methods.dapple import dapple
from penstock.planners.methods.pipedream import pipedream
from penstock.planners.methods.spp import spp
from penstock.profile import Profile, Sizes, Times, Unit

PLANNERS = ("auto", "spp", "dapple", "pipedream")
UNITS, DEVICES, MICROBATCHES = 100, 16, 16
DAPPLE_DEVICES = 64
"""DAPPLE's search takes too long with more devices."""
MAX_CALLS, ENOUGH_S = 9, 0.2
"""Shorter calls are repeated."""


class Point(NamedTuple):
    """A planner on a random chain of layers, on hosts of four devices."""

    planner: str
    axis: str
    num_units: int
    num_devices: int
    num_microbatches: int

    @property
    def title(self) -> str:
        """The name in tables and messages."""
        return f"{self.planner}: {self.num_units} units, {self.num_devices} devices, M = {self.num_microbatches}"


def points(
    units: Sequence[int], devices: Sequence[int], microbatches: Sequence[int], planners: Sequence[str] = PLANNERS
) -> tuple[Point, ...]:
    """Points in which one of the three sizes grows and the others stay."""
    points = []
    for planner in planners:
        points += [Point(planner, "layers", count, DEVICES, MICROBATCHES) for count in units]
        points += [
            Point(planner, "devices", UNITS, count, MICROBATCHES)
            for count in devices
            if planner != "dapple" or count <= DAPPLE_DEVICES
        ]
        points += [Point(planner, "M", UNITS, DEVICES, count) for count in microbatches]
    return tuple(points)


ALL = points((25, 50, 100, 200, 400), (4, 8, 16, 32, 64, 128, 256), (4, 16, 64, 256))
QUICK = points((25, 100), (4, 16), (4, 64), planners=("spp", "pipedream"))


class PointRun(msgspec.Struct, frozen=True):
    """The median time of a few calls, without compilation."""

    planner: str
    axis: str
    num_units: int
    num_devices: int
    num_microbatches: int
    seconds: float

    @property
    def size(self) -> int:
        """The size that grows."""
        return {"layers": self.num_units, "devices": self.num_devices, "M": self.num_microbatches}[self.axis]


def chain(num_units: int, seed: int = 0) -> Profile:
    """A chain of layers whose times and bytes differ by up to a factor of ten."""
    random = np.random.default_rng(seed)
    units = []
    for number in range(num_units):
        forward, input_grad, weight_grad = random.uniform(1e-3, 1e-2, 3).tolist()
        cut, saved, parameters = random.integers(10**6, 10**7, 3).tolist()
        times = Times(
            kind="X", micro_batch_size=1, forward_s=forward, input_grad_s=input_grad, weight_grad_s=weight_grad
        )
        sizes = Sizes(micro_batch_size=1, cut_bytes=cut, saved_bytes=saved)
        units.append(Unit(name=f"u{number}", parameter_bytes=parameters, sizes=(sizes,), times=(times,)))
    return Profile(name="chain", micro_batch_size=1, units=tuple(units))


def run_point(point: Point) -> PointRun:
    """Time a planner, after a call on a small problem that compiles all kernels."""
    methods: dict[str, Callable[[Problem], object]] = {
        "auto": lambda problem: fastest_auto(problem, replication=True),
        "spp": spp,
        "dapple": dapple,
        "pipedream": pipedream,
    }
    method = methods[point.planner]
    method(_problem(8, 8, 4))
    seconds: list[float] = []
    while len(seconds) < MAX_CALLS and sum(seconds) < ENOUGH_S:
        problem = _problem(point.num_units, point.num_devices, point.num_microbatches)
        start_time = time.perf_counter()
        method(problem)
        seconds.append(time.perf_counter() - start_time)
    return PointRun(*point, seconds=statistics.median(seconds))


def _problem(num_units: int, num_devices: int, num_microbatches: int) -> Problem:
    cluster = load_cluster(f"{num_devices // 4} x 4 x X @ 100 GB/s / 1.25 GB/s")
    return Problem(chain(num_units), cluster, num_microbatches)


def exponent(runs: Sequence[PointRun]) -> float:
    """The exponent of the power law seconds = c * size ** exponent, fitted to all points."""
    sizes, seconds = np.log([run.size for run in runs]), np.log([run.seconds for run in runs])
    return float(np.polyfit(sizes, seconds, 1)[0])
