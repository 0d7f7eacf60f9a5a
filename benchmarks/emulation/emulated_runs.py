"""Emulation of the cases that have no record yet, one after the other."""

import time
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.emulation.cases import Case, plan_case
from benchmarks.emulation.paced import emulate_paced
from benchmarks.records import Records, Task
from penstock.emulation import Emulation

NUM_STEPS = 3
"""Iterations per plan; the first is a warm-up."""


class EmulatedRun(msgspec.Struct, frozen=True):
    """The predicted and the emulated iteration times of a plan."""

    profile: str
    cluster: str
    num_microbatches: int
    method: str
    num_devices: int
    slow_down: float
    predicted_s: float
    measured_s: tuple[float, ...]
    limits: tuple[str, ...]
    """The ways in which the machine did not keep up."""

    @property
    def case(self) -> Case:
        """The case that was emulated."""
        return Case(self.profile, self.cluster, self.num_microbatches, self.method)

    @property
    def emulated_s(self) -> float:
        """The median iteration time."""
        return median(self.measured_s)

    @property
    def error(self) -> float:
        """The simulator's relative error; positive if it predicts more than the emulation takes."""
        return self.predicted_s / self.emulated_s - 1


def run_case(case: Case, folder: Path) -> EmulatedRun:
    """Plan and emulate a case."""
    plan, profile, cluster = plan_case(case, folder)
    paced = emulate_paced(Emulation(plan=plan, profile=profile, cluster=cluster, num_steps=NUM_STEPS))
    return EmulatedRun(*case, **paced._asdict())


def run_all(tasks: list[Task], records: Records, folder: Path) -> None:
    """Emulate the tasks and record the results."""
    start_time = time.monotonic()
    for done, task in enumerate(tasks, start=1):
        started = time.monotonic()
        result = run_case(Case(*task.about), folder)  # type: ignore[arg-type]
        took_s = time.monotonic() - started
        records.add(task, result, took_s)
        left_s = (time.monotonic() - start_time) / done * (len(tasks) - done)
        left = f"about {left_s / 60:.0f} min left"
        print(f"  [{done:2}/{len(tasks)}] {summarize(result)}; took {took_s:.0f} s, {left}", flush=True)
        for text in result.limits:
            print(f"          machine: {text}", flush=True)


def summarize(result: EmulatedRun) -> str:
    """The result of a case in one line."""
    return (
        f"{result.case.problem.title:34} {result.method:13} predicted {result.predicted_s * 1e3:7.1f} ms, emulated "
        f"{result.emulated_s * 1e3:7.1f} ms ({result.slow_down:g} x slower): {result.error:+.1%}"
    )
