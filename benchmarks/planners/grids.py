"""Large clusters: `auto` against every regular grid, and its processor time and memory on 4,096 devices.

Hosts of 8 A100-80, 300 GB/s inside and 100 Gbit/s between; llama-3-70b; 16 micro-batches with one row for each device
(4 rows on 64 devices). A grid is a number of stages times a number of equal replicas, straight or with 2 or 4 stages
per device in a loop or a V, with replicas or stages on neighbouring devices, with or without recomputation, under every
schedule. Replicas have whole rows, in grids and in the plan of `auto`. `--quick` plans gpt2-xl on 8 RTX-3090 only.
"""

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import msgspec

from benchmarks.planners.methods import fits
from benchmarks.results import Result
from penstock.cluster import load_cluster
from penstock.plan import Plan
from penstock.plan.pricing import price
from penstock.planners import Problem, SearchSpace
from penstock.planners.auto import auto
from penstock.planners.bounds import lower_bound
from penstock.planners.methods import regular_grids
from penstock.profile import load_profile
from penstock.schedules import SCHEDULES
from penstock.simulate import evaluate

WHOLE_ROWS = SearchSpace(part_rows=False)
FULL = (("llama-3-70b", "A100-80", 8, 4, 30.0), ("llama-3-70b", "A100-80", 128, 64, 120.0))
"""Model, kind, hosts, rows of a micro-batch, and the limit on processor seconds."""
QUICK = (("gpt2-xl", "RTX-3090", 1, 16, 120.0),)
ADVANTAGE, GAP = 1.05, 0.10
"""How much faster `auto` must be than the best grid, unless it is as close as `GAP` to the lower bound."""
LARGEST = ("llama-3-70b", "A100-80", 512, 256)
LARGEST_S, LARGEST_BYTES = 180.0, 2e9


def check_grids(*, quick: bool = False) -> Iterator[Result]:
    """The targets: planning time, and a plan that is faster than every grid."""
    for model, kind, num_hosts, rows, limit_s in QUICK if quick else FULL:
        problem = _problem(model, kind, num_hosts, rows)
        start_s = time.process_time()
        plan = auto(problem, search_space=WHOLE_ROWS)
        took_s = time.process_time() - start_s
        seconds, fit = _outcome(problem, plan)
        best, name, count = _best_grid(problem)
        where = f"auto on {problem.cluster.num_devices:,} devices, {model}"
        yield Result(where, f"< {limit_s:.0f} s", f"{took_s:.0f} s", took_s < limit_s)
        gap = seconds / lower_bound(problem.profile, problem.cluster, problem.num_microbatches).seconds - 1
        least = 1.0 if quick else ADVANTAGE
        yield Result(
            f"{where}: against the best of {count:,} grids x schedules ({name})",
            f">= {least:g} x, or <= {GAP:.0%} above the bound",
            f"{best / seconds:.3f} x ({seconds:.2f} s against {best:.2f} s), {gap:.0%} above the bound",
            fit and (best >= least * seconds or gap <= GAP),
        )
    if not quick:
        yield from _check_largest()


def _check_largest() -> Iterator[Result]:
    # In a process of its own, whose peak memory is that of one plan.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        took_s, peak_bytes = pool.submit(plan_largest).result()
    where = "auto on 4,096 devices, llama-3-70b"
    yield Result(f"{where}: processor time", f"< {LARGEST_S:.0f} s", f"{took_s:.0f} s", took_s < LARGEST_S)
    yield Result(f"{where}: memory", "< 2 GB", f"{peak_bytes / 1e9:.2f} GB", peak_bytes < LARGEST_BYTES)


def plan_largest() -> tuple[float, float]:
    """Processor seconds and peak bytes of planning for 4,096 devices."""
    problem = _problem(*LARGEST)
    start_s = time.process_time()
    auto(problem, search_space=WHOLE_ROWS)
    took_s = time.process_time() - start_s
    return took_s, 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
