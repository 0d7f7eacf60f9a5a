"""Runs tasks in one process or several, and prints progress."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from benchmarks.planners import cases, growth, small_cases, speed
from benchmarks.planners.comparison import View
from benchmarks.records import Records, Task

ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_task(task: Task, folder: Path) -> tuple[Task, msgspec.Struct, float]:
    """Run one task; return its result and its time."""
    part, about = task.part, task.about
    work: dict[str, Callable[[], msgspec.Struct]] = {
        "cases": lambda: cases.run_case(msgspec.convert(about, cases.Case), folder),
        "small": lambda: small_cases.run_small(msgspec.convert(about, small_cases.SmallCase)),
        "speed": lambda: speed.run_timed(msgspec.convert(about, speed.TimedCase), folder),
        "growth": lambda: growth.run_point(msgspec.convert(about, growth.Point)),
    }
    start_time = time.perf_counter()
    result = work[part]()
    return task, result, time.perf_counter() - start_time


def run_missing(tasks: list[Task], records: Records, folder: Path, num_jobs: int) -> None:
    """Run the tasks that have no record yet, and record them."""
    missing = records.missing(tasks)
    if len(tasks) > len(missing):
        print(f"{len(tasks) - len(missing)} of {len(tasks)} have a record", flush=True)
    start_time = time.monotonic()
    for done, (task, result, took_s) in enumerate(_run(missing, folder, num_jobs), start=1):
        records.add(task, result, took_s)
        left_s = (time.monotonic() - start_time) / done * (len(missing) - done)
        left = f"about {left_s / 60:.0f} min left" if left_s >= 90 else f"about {left_s:.0f} s left"
        print(f"  [{done:3}/{len(missing)}] {summarize(result)}; took {took_s:.1f} s, {left}", flush=True)


def _run(tasks: list[Task], folder: Path, num_jobs: int) -> Iterator[tuple[Task, msgspec.Struct, float]]:
    if num_jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield run_task(task, folder)
        return
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # inherited by the pool's processes
    with ProcessPoolExecutor(num_jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(run_task, task, folder) for task in tasks]
        try:
            yield from (done.result() for done in as_completed(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # the remaining results would not be recorded
            raise


def summarize(result: msgspec.Struct) -> str:
    """The result of a task in one line."""
    match result:
        case cases.CaseRun():
            parts = []
            for view in (View(result, True), View(result, False)):
                other = view.next_best
                next_text = f"next {other.seconds / view.auto.seconds:.3f} x" if other else "no other fits"
                fits = "" if view.auto.fits else ", does not fit"
                parts.append(f"{view.auto.seconds:.4g} s, {view.gap:.1%} over bound, {next_text}{fits}")
            return f"{result.title:44} {parts[0]}; straight {parts[1]}"
        case small_cases.SmallRun():
            proved = "" if result.proved else " (not proved)"
            return (
                f"{result.title} exact {result.exact_s:.2f} s{proved}, auto {result.auto_s / result.exact_s - 1:+.2%}"
            )
        case speed.TimedRun():
            return f"{result.planner}: {result.profile} on {result.num_devices} devices: {result.median_s:.2f} s"
        case growth.PointRun():
            return f"{growth.Point(*msgspec.structs.astuple(result)[:5]).title}: {result.seconds:.2f} s"
        case _:
            return ""
