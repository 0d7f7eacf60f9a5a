"""The schedule auto under tight memory: against schedules that are made for it, and with more and more of it.

- The eight variants of the zero-bubble heuristic (Penstock's own implementation of the paper) on straight pipelines of
  p stages, with memory for p and 2 p micro-batches; ZB-V, V-Half and V-Min with exactly their own memory.
- Balanced plans (straight, V and loop) of gpt2-xl and llama-3-8b, and random pipelines, within ten limits each: more
  memory must not give a slower order, and what fits into less must fit into more.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np

from benchmarks.results import Result
from penstock.arrays import Floats
from penstock.cluster import Cluster, Device, Host, Wire, load_cluster
from penstock.plan import Plan, Shape
from penstock.plan.pricing import Costs, price
from penstock.planners import Problem
from penstock.planners.methods import balanced, uniform
from penstock.profile import Profile, Sizes, Times, Unit, load_profile
from penstock.program import Program
from penstock.program.lowering import lower
from penstock.program.proof import memory_use
from penstock.schedules import schedule
from penstock.schedules.methods import best_order
from penstock.schedules.search import rounds, score_program

MOST = 1.001
"""How much slower schedule auto may be."""
KEPT = 1000
V_SCHEDULES = ("zb_v", "v_half", "v_min")
MODELS = (("llama-3-8b", 2), ("gpt2-xl", 4))
NUM_LIMITS = 10


class Times3(NamedTuple):
    """Seconds of a stage."""

    forward_s: float
    input_grad_s: float
    weight_grad_s: float


def check_tight_memory(*, quick: bool = False) -> Iterator[Result]:
    """The targets of both parts."""
    sizes = (4,) if quick else (4, 8, 16, 32)
    ratios = [ratio for size in sizes for ratio in _against_heuristic(size)]
    yield _never_slower(f"the zero-bubble heuristic, {len(ratios)} cases", ratios)
    ratios = [ratio for size in sizes[:3] for ratio in _against_v(size)]
    yield _never_slower(f"ZB-V, V-Half and V-Min with their memory, {len(ratios)} cases", ratios)
    for what, plans in (
        ("balanced plans", list(_balanced_plans(quick=quick))),
        ("random pipelines", [_random_plan(seed) for seed in range(10 if quick else 100)]),
    ):
        yield _monotone(what, plans)


def _monotone(what: str, plans: list[tuple[Problem, Plan]]) -> Result:
    steps = [step for problem, plan in plans for step in _steps(problem, plan)]
    worse = [ratio for ratio in steps if ratio > MOST]
    return Result(
        f"more memory: {len(plans)} {what} x {NUM_LIMITS} limits",
        "0 exceptions",
        f"{len(worse)} slower (by up to {max(steps) - 1:.1%})" if worse else "0",
        not worse,
    )


def _never_slower(what: str, ratios: list[float]) -> Result:
    worse = sum(ratio > MOST for ratio in ratios)
    return Result(f"schedule auto over {what}", "<= 1.001", f"{max(ratios):.4f} at most, {worse} above", worse == 0)


def _stages(size: int) -> Iterator[tuple[list[Times3], float]]:
    """Equal stages; equal ones with latency; unequal ones."""
    random = Random(size)
    yield [Times3(1.0, 1.0, 1.0)] * size, 0.0
    yield [Times3(1.0, 1.2, 0.8)] * size, 0.05
    yield [Times3(*(random.uniform(0.7, 1.3) for _ in range(3))) for _ in range(size)], 0.02


def _against_heuristic(size: int) -> Iterator[float]:
    for num in (size, 2 * size, 4 * size):
        for kept in (size, 2 * size):
            for stages, latency_s in _stages(size):
                costs = _costs(stages, size, num, latency_s, Shape.STRAIGHT, kept * KEPT)
                room = np.full(size, float(kept * KEPT))
                best = min(score_program(program, costs) for program in rounds(costs, room))
                yield _ratio(costs, best.seconds)


def _against_v(size: int) -> Iterator[float]:
    for num in (size, 2 * size, 4 * size):
        for name in V_SCHEDULES:
            for stages, latency_s in _stages(2 * size):
                free = _costs(stages, size, num, latency_s, Shape.V, None)
                program = schedule(free, name)
                costs = _costs(stages, size, num, latency_s, Shape.V, int(_peak(program, free).max()))
                yield _ratio(costs, score_program(schedule(costs, name), costs).seconds)


def _ratio(costs: Costs, seconds: float) -> float:
    score = best_order(costs)[0]
    return score.seconds / seconds if score.over_bytes == 0 else float("inf")


def _costs(
    stages: list[Times3], num_devices: int, num: int, latency_s: float, shape: Shape, memory_bytes: int | None
) -> Costs:
    sizes = [Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=KEPT)] * len(stages)
    problem = _problem(stages, sizes, num_devices, num, Wire(bandwidth=1e9, latency_s=latency_s), shape, memory_bytes)
    return price(uniform(problem), problem.profile, problem.cluster)


def _random_plan(seed: int) -> tuple[Problem, Plan]:
    """Stages of random times and sizes, in a random shape."""
    random = Random(seed)
    size = random.randint(2, 6)
    shape = random.choice(list(Shape))
    chunks = 1 if shape is Shape.STRAIGHT else 2
    stages = [Times3(*(random.uniform(0.5, 1.5) for _ in range(3))) for _ in range(size * chunks)]
    sizes = [
        Sizes(
            micro_batch_size=1,
            cut_bytes=random.randint(0, 400),
            saved_bytes=(saved := random.randint(500, 1500)),
            pending_bytes=random.randint(0, saved),
        )
        for _ in stages
    ]
    wire = Wire(bandwidth=random.choice([1e3, 1e4]), latency_s=random.choice([0.0, 0.05]))
    problem = _problem(stages, sizes, size, random.randint(2, 3 * size), wire, shape, None)
    return problem, uniform(problem)


def _problem(
    stages: list[Times3],
    sizes: list[Sizes],
    num_devices: int,
    num: int,
    wire: Wire,
    shape: Shape,
    memory_bytes: int | None,
) -> Problem:
    """A layer for each stage, on one host."""
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(size,),
            times=(Times(kind="k", micro_batch_size=1, **stage._asdict()),),
        )
        for number, (stage, size) in enumerate(zip(stages, sizes, strict=True))
    )
    devices = tuple(
        Device(name=f"d{number}", host="h", kind="k", memory_bytes=memory_bytes) for number in range(num_devices)
    )
    cluster = Cluster(name="c", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    profile = Profile(name="p", micro_batch_size=1, units=units)
    chunks = 1 if shape is Shape.STRAIGHT else 2
    return Problem(profile, cluster, num, shape=shape, num_chunks=chunks)


def _balanced_plans(*, quick: bool) -> Iterator[tuple[Problem, Plan]]:
    for model, rows in MODELS[1:] if quick else MODELS:
        for num_devices in (4,) if quick else (4, 8):
            cluster = load_cluster(f"{num_devices} x A100-40 @ 100 GB/s")
            profile = load_profile(model, kinds=["A100-40"], micro_batch_size=rows, sequence=2048 // rows)
            for shape in (Shape.STRAIGHT, Shape.V, Shape.LOOP):
                for num in (num_devices,) if quick else (num_devices, 2 * num_devices):
                    chunks = 1 if shape is Shape.STRAIGHT else 2
                    problem = Problem(profile, cluster, num, shape=shape, num_chunks=chunks)
                    yield problem, balanced(problem)


def _steps(problem: Problem, plan: Plan) -> Iterator[float]:
    """The seconds within each limit over the least within smaller ones; infinite if only a smaller one fits."""
    free = price(plan, problem.profile, problem.cluster)
    peaks = [_peak(schedule(free, name), free).max() for name in ("1f1b", "v_min", "v_half", "zb_v", "gpipe")]
    static = float(free.static_bytes.max())
    low, high = max(0.8 * min(peaks) - static, 0.01 * static), 1.02 * max(peaks) - static
    best = float("inf")
    for room in np.geomspace(low, high, NUM_LIMITS).tolist():
        score = best_order(_within(problem, plan, int(static + room)))[0]
        seconds = score.seconds if score.over_bytes == 0 else float("inf")
        if best < float("inf"):
            yield seconds / best
        best = min(best, seconds)


def _within(problem: Problem, plan: Plan, memory_bytes: int) -> Costs:
    cluster = problem.cluster
    devices = tuple(msgspec.structs.replace(device, memory_bytes=memory_bytes) for device in cluster.devices)
    return price(plan, problem.profile, msgspec.structs.replace(cluster, devices=devices), strict=False)


def _peak(program: Program, costs: Costs) -> Floats:
    lowered = lower(program, costs)
    return memory_use(lowered, costs).peak(lowered, costs)
