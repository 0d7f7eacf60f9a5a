"""A thousand devices: `auto` against every regular grid, in two minutes.

128 hosts of 8 A100-80, 300 GB/s inside and 100 Gbit/s between; llama-3-70b; a global batch
size of 1,024 in 16 micro-batches of 64 rows. A grid is a number of stages times a number of equal replicas, straight or
with 2 or 4 stages per device in a loop or a V, with replicas or stages on neighbouring devices, with or without
recomputation, under every schedule. Replicas have whole rows, in grids and in the plan of `auto`. `--quick` plans
gpt2-xl on 8 RTX-3090.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from benchmarks.planners.methods import fits
from benchmarks.results import Result
from penstock.cluster import load_cluster
from penstock.plan import Plan
from penstock.plan.pricing import price
from penstock.planners import Problem, SearchSpace
from penstock.planners.auto import auto
from penstock.planners.methods import regular_grids
from penstock.profile import load_profile
from penstock.schedules import SCHEDULES
from penstock.simulate import evaluate

WHOLE_ROWS = SearchSpace(part_rows=False)
LIMIT_S = 120.0
FULL = ("llama-3-70b", "A100-80", 128, 64)
QUICK = ("gpt2-xl", "RTX-3090", 1, 16)


def check_grids(*, quick: bool = False) -> Iterator[Result]:
    """The two targets: the planning time of `auto`, and that no grid is faster than its plan."""
    problem = _problem(*(QUICK if quick else FULL))
    start_time = time.perf_counter()
    plan = auto(problem, search_space=WHOLE_ROWS)
    took_s = time.perf_counter() - start_time
    seconds, fit = _outcome(problem, plan)
    best, name, count = _best_grid(problem)
    num = problem.cluster.num_devices
    where = f"auto on {num:,} devices, {problem.profile.name}"
    yield Result(where, f"< {LIMIT_S:.0f} s", f"{took_s:.0f} s", took_s < LIMIT_S)
    yield Result(
        f"{where}: against the best of {count:,} grids x schedules ({name})",
        "no slower",
        f"{seconds:.2f} s against {best:.2f} s: {best / seconds:.3f} x",
        fit and seconds <= best,
    )


def _problem(model: str, kind: str, num_hosts: int, rows: int) -> Problem:
    """The model on hosts of 8 devices, in 16 micro-batches."""
    cluster = load_cluster(f"{num_hosts} x 8 x {kind} @ 300 GB/s / 100 Gbit/s")
    return Problem(load_profile(model, kinds=[kind], micro_batch_size=rows), cluster, 16)


def _best_grid(problem: Problem) -> tuple[float, str, int]:
    """The iteration time and the name of the fastest grid that fits, and the number of grids x schedules tried."""
    best, name, count = float("inf"), "none fits", 0
    for base in (problem, replace(problem, recompute=True)):
        for grid in regular_grids(base):
            if not WHOLE_ROWS.allow(grid, problem.cluster):
                continue
            costs = price(grid, problem.profile, problem.cluster)
            for schedule in SCHEDULES:
                count += 1
                if costs.over_bytes(costs.static_bytes).any():
                    continue  # its parameters alone do not fit
                seconds, fit = _outcome(problem, msgspec.structs.replace(grid, schedule=schedule))
                if fit and seconds < best:
                    replicas = grid.stages[0].num_replicas
                    again = ", recomputing" if base.recompute else ""
                    best, name = seconds, f"{grid.num_stages} stages x {replicas}, {schedule}{again}"
    return best, name, count


def _outcome(problem: Problem, plan: Plan) -> tuple[float, bool]:
    evaluation = evaluate(plan, problem.profile, problem.cluster, within_memory=False)
    return evaluation.timeline.iteration_s, fits(evaluation)
