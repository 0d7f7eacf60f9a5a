"""How much memory ranks take, against one process and against what the plan's memory model says.

Measured is resident memory as the kernel counts it: the highest mark while training, beyond what the process had before
the model was made (libraries loaded, kernels warmed up). The C library is told to give every block of 64 kB or more
back at once when it is freed, so what is resident is what is in use. That is slower, and why nothing here is timed.
Memory that two ranks share is resident in both, and counted at the one that receives what is in it.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch.distributed as dist
from msgspec.structs import replace

import penstock
from benchmarks.results import Result
from benchmarks.runtime.contenders import OurPlan, Ours, make_contender
from benchmarks.runtime.machine_profile import measure_here
from benchmarks.runtime.overhead import NARROW, narrow_pipeline
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.workloads import Subject
from penstock import Cluster, Plan, Profile, SearchSpace

CLOSE = 0.10
BEYOND = 0.10
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
SCHEDULES = ("1f1b", "zb_h1", "gpipe")


class PeakRun(msgspec.Struct, frozen=True, kw_only=True):
    """One subject with one plan; bytes of each rank."""

    title: str
    num_microbatches: int
    plan: str
    measured: tuple[float, ...]
    modelled: tuple[float, ...]
    alone_measured: float
    alone_modelled: float

    @property
    def errors(self) -> list[float]:
        """How far the measured peak of each rank is above the modelled one."""
        return [real / said - 1 for real, said in zip(self.measured, self.modelled, strict=True)]

    @property
    def beyond(self) -> float:
        """What all ranks take beyond one process and beyond what the model says of that, in parts of one process."""
        real = sum(self.measured) - self.alone_measured
        said = sum(self.modelled) - self.alone_modelled
        return (real - said) / self.alone_measured


def run_peaks(subject: Subject, num_microbatches: int, profile_s: float, *, only: str = "") -> list[PeakRun]:
    """One process, and several plans on two ranks (or only one of them); fresh processes for each."""
    with Ranks() as ranks:
        profile, two = measure_here(ranks, subject, profile_s, overheads=not only)
    one = replace(two, devices=two.devices[:1])
    before = {name: os.environ.get(name) for name in ALLOCATOR}
    os.environ.update(ALLOCATOR)
    try:
        single = penstock.plan(profile, one, num_microbatches, planner="uniform", schedule="1f1b")
        with Ranks(1) as ranks:
            alone = ranks.on_first(peak_of, subject, num_microbatches, num_microbatches)
        runs = []
        for name, plan in _plans(profile, two, num_microbatches).items():
            if only not in ("", name):
                continue
            with Ranks() as ranks:
                peaks = ranks.on_all(peak_of, subject, num_microbatches, OurPlan(plan, profile, two))
            runs.append(
                PeakRun(
                    title=subject.title,
                    num_microbatches=num_microbatches,
                    plan=name,
                    measured=tuple(peaks),
                    modelled=tuple(penstock.evaluate(plan, profile, two).proof.peak_bytes.tolist()),
                    alone_measured=alone,
                    alone_modelled=float(penstock.evaluate(single, profile, one).proof.peak_bytes[0]),
                )
            )
        return runs
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _plans(profile: Profile, cluster: Cluster, num_microbatches: int) -> dict[str, Plan]:
    found = {
        f"balanced, {schedule}": penstock.plan(
            profile, cluster, num_microbatches, planner="balanced", schedule=schedule
        )
        for schedule in SCHEDULES
    }
    return found | {
        "auto": penstock.plan(profile, cluster, num_microbatches, search_space=SearchSpace(replication=False))
    }


def peak_of(_memory: dict[str, Any], subject: Subject, num_microbatches: int, given: OurPlan | int) -> float:
    """On a rank: the peak of two iterations, after two that fill what stays."""
    _warm_up(NARROW[subject.name], num_microbatches, is_ours=isinstance(given, OurPlan))
    batch = subject.batch(0, num_microbatches)
    gc.collect()
    before = _status("VmRSS")
    contender = make_contender(subject, num_microbatches, given)
    for number in range(4):
        if number == 2:
            gc.collect()
            # Sets the highest mark to what is resident now.
            Path("/proc/self/clear_refs").write_text("5")
        contender.step(*batch)
    peak = _status("VmHWM") - before
    if isinstance(contender, Ours):
        # Resident here and where it is received, and counted there.
        peak -= contender.pipe._transport.shared_bytes
        dist.barrier()
    return peak


def _warm_up(narrow: Subject, num_microbatches: int, *, is_ours: bool) -> None:
    """Load all code that will run: compiled schedules and proofs alone are about 100 MB, whatever the model."""
    make_contender(narrow, num_microbatches, num_microbatches).step(*narrow.batch(0, num_microbatches))
    if is_ours:
        for schedule in (*SCHEDULES, "auto"):
            pipe = narrow_pipeline(narrow, schedule, num_microbatches)
            pipe.step(*narrow.batch(0, num_microbatches))
            pipe.close()


def _status(name: str) -> float:
    text = Path("/proc/self/status").read_text()
    return 1024.0 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def against_model(runs: list[PeakRun]) -> Iterator[Result]:
    """The worst rank of each subject, and the most that ranks take beyond one process."""
    for title in dict.fromkeys(run.title for run in runs):
        chosen = [run for run in runs if run.title == title]
        error, plan = max(((error, run.plan) for run in chosen for error in run.errors), key=lambda item: abs(item[0]))
        yield Result(
            f"{title}: measured peak of a rank against the memory model, worst of {len(chosen)} plans",
            f"<= {CLOSE:.0%}",
            f"{error:+.1%} ({plan})",
            abs(error) <= CLOSE,
            is_over_all=True,
        )
        most = max(chosen, key=lambda run: run.beyond)
        yield Result(
            f"{title}: memory beyond one process and the model's word for it",
            f"<= {BEYOND:.0%}",
            f"{most.beyond:+.1%} of {most.alone_measured / 1e6:.0f} MB ({most.plan})",
            most.beyond <= BEYOND,
            is_over_all=True,
        )


def peak_table(runs: list[PeakRun]) -> str:
    """Every plan and rank."""
    lines = [
        "| model | plan | rank 0: measured, model | rank 1: measured, model | one process: measured, model |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for run in runs:
        ranks = [
            f"{real / 1e6:.0f}, {said / 1e6:.0f} MB" for real, said in zip(run.measured, run.modelled, strict=True)
        ]
        alone = f"{run.alone_measured / 1e6:.0f}, {run.alone_modelled / 1e6:.0f} MB"
        lines.append(f"| {run.title}, M = {run.num_microbatches} | {run.plan} | {' | '.join(ranks)} | {alone} |")
    return "\n".join(lines)
