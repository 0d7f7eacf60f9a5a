"""Emulating the cases that are not yet on record, one after the other."""

import time
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.emulation.cases import Case, made
from benchmarks.records import Records, Task
from penstock.emulation import Emulation, choose_slow_down
from penstock.launch import emulate

NUM_STEPS = 3
"""The first warms up."""
PACES = (1.0, 2.0, 4.0)
"""How many times slower than the machine should need: the first with which it keeps up counts, else the last."""


class EmulatedRun(msgspec.Struct, frozen=True):
    """What was predicted for a plan, and what an iteration took when it was emulated."""

    profile: str
    cluster: str
    num_microbatches: int
    method: str
    num_devices: int
    slow_down: float
    predicted_s: float
    measured_s: tuple[float, ...]
    limits: tuple[str, ...]
    """Where the machine did not keep up."""

    @property
    def case(self) -> Case:
        """Which one this is."""
        return Case(self.profile, self.cluster, self.num_microbatches, self.method)

    @property
    def emulated_s(self) -> float:
        """An iteration, in the median."""
        return median(self.measured_s)

    @property
    def error(self) -> float:
        """By what part of the emulated time the simulator is off; above zero if it predicts more."""
        return self.predicted_s / self.emulated_s - 1


def run_case(case: Case, folder: Path) -> EmulatedRun:
    """Plan and emulate; where the machine does not keep up, again at half the pace."""
    plan, profile, cluster = made(case, folder)
    asked = Emulation(plan=plan, profile=profile, cluster=cluster, num_steps=NUM_STEPS)
    for pace in PACES:
        found = _emulated(case, asked, choose_slow_down(asked.evaluation) * pace)
        if not found.limits:
            break
    return found


def _emulated(case: Case, asked: Emulation, slow_down: float) -> EmulatedRun:
    predicted_s = asked.evaluation.timeline.iteration_s
    asked = msgspec.structs.replace(
        asked, slow_down=slow_down, timeout_s=max(asked.timeout_s, 10 * predicted_s * slow_down)
    )
    found = emulate(asked)
    if found.failure is not None:
        raise found.failure
    if found.was_stopped:
        raise KeyboardInterrupt
    return EmulatedRun(
        *case,
        num_devices=len(asked.devices),
        slow_down=slow_down,
        predicted_s=predicted_s,
        measured_s=tuple(timeline.iteration_s for timeline in found.timelines),
        limits=found.limits,
    )


def run_all(tasks: list[Task], records: Records, folder: Path) -> None:
    """Emulate, and keep what came of it."""
    began = time.monotonic()
    for done, task in enumerate(tasks, start=1):
        started = time.monotonic()
        found = run_case(Case(*task.about), folder)  # type: ignore[arg-type]
        took_s = time.monotonic() - started
        records.add(task, found, took_s)
        left_s = (time.monotonic() - began) / done * (len(tasks) - done)
        left = f"about {left_s / 60:.0f} min left"
        print(f"  [{done:2}/{len(tasks)}] {told(found)}; took {took_s:.0f} s, {left}", flush=True)
        for text in found.limits:
            print(f"          machine: {text}", flush=True)


def told(found: EmulatedRun) -> str:
    """What came of a case, in a line."""
    return (
        f"{found.case.problem.title:34} {found.method:13} predicted {found.predicted_s * 1e3:7.1f} ms, emulated "
        f"{found.emulated_s * 1e3:7.1f} ms ({found.slow_down:g} x slower): {found.error:+.1%}"
    )
