"""Doing tasks, in one process or several, with what is left to do in sight."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from benchmarks.planners import cases, growth, small, speed
from benchmarks.planners.comparison import View
from benchmarks.records import Records, Task

ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_task(task: Task, folder: Path) -> tuple[Task, msgspec.Struct, float]:
    """Do one task, here and now; and how long it took."""
    part, about = task.part, task.about
    work: dict[str, Callable[[], msgspec.Struct]] = {
        "cases": lambda: cases.run_case(msgspec.convert(about, cases.Case), folder),
        "small": lambda: small.run_small(msgspec.convert(about, small.Small)),
        "speed": lambda: speed.run_timed(msgspec.convert(about, speed.Timed), folder),
        "growth": lambda: growth.run_point(msgspec.convert(about, growth.Point)),
    }
    began = time.perf_counter()
    found = work[part]()
    return task, found, time.perf_counter() - began


def run_missing(tasks: list[Task], records: Records, folder: Path, num_jobs: int) -> None:
    """Do what is not yet on record, and keep it."""
    missing = records.missing(tasks)
    if len(tasks) > len(missing):
        print(f"{len(tasks) - len(missing)} of {len(tasks)} are on record already", flush=True)
    began = time.monotonic()
    for done, (task, found, took_s) in enumerate(_run(missing, folder, num_jobs), start=1):
        records.add(task, found, took_s)
        left_s = (time.monotonic() - began) / done * (len(missing) - done)
        left = f"about {left_s / 60:.0f} min left" if left_s >= 90 else f"about {left_s:.0f} s left"
        print(f"  [{done:3}/{len(missing)}] {told(found)}; took {took_s:.1f} s, {left}", flush=True)


def _run(tasks: list[Task], folder: Path, num_jobs: int) -> Iterator[tuple[Task, msgspec.Struct, float]]:
    if num_jobs == 1 or len(tasks) < 2:
        for task in tasks:
            yield run_task(task, folder)
        return
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # for the processes to come
    with ProcessPoolExecutor(num_jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(run_task, task, folder) for task in tasks]
        try:
            yield from (done.result() for done in as_completed(waiting))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # nobody would keep what comes of the rest
            raise


def told(found: msgspec.Struct) -> str:
    """What came of a task, in a line."""
    match found:
        case cases.CaseRun():
            parts = []
            for view in (View(found, True), View(found, False)):
                other = view.next_best
                beside = f"next {other.seconds / view.auto.seconds:.3f} x" if other else "no other fits"
                fits = "" if view.auto.fits else ", does not fit"
                parts.append(f"{view.auto.seconds:.4g} s, {view.gap:.1%} over bound, {beside}{fits}")
            return f"{found.title:44} {parts[0]}; straight {parts[1]}"
        case small.SmallRun():
            proved = "" if found.proved else " (not proved)"
            return f"{found.title} exact {found.exact_s:.2f} s{proved}, auto {found.auto_s / found.exact_s - 1:+.2%}"
        case speed.TimedRun():
            return f"{found.planner}: {found.profile} on {found.num_devices} devices: {found.median_s:.2f} s"
        case growth.PointRun():
            return f"{growth.Point(*msgspec.structs.astuple(found)[:5]).title}: {found.seconds:.2f} s"
        case _:
            return ""
