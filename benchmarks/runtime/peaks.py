"""Memory of ranks, against a single process and against the plan's memory model.

The measure is resident memory as the kernel counts it: the peak during training, less that of the process before the
model was built (libraries loaded, kernels warmed up). The C library returns every freed block of 64 kB or more at once,
so resident memory is memory in use. This is slow, so nothing here is timed. Memory that two ranks share is resident in
both, and counted at the receiver.
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
from benchmarks.runtime.contenders import PenstockPlan, PenstockTrainer, make_contender
from benchmarks.runtime.machine_profile import measure_machine
from benchmarks.runtime.overhead import NARROW, narrow_pipeline
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.workloads import Workload
from penstock import Cluster, Plan, Profile, SearchSpace

CLOSE = 0.10
BEYOND = 0.10
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
SCHEDULES = ("1f1b", "zb_h1", "gpipe")


class PeakRun(msgspec.Struct, frozen=True, kw_only=True):
    """One workload with one plan; bytes by rank."""

    title: str
    num_microbatches: int
    plan: str
    measured: tuple[float, ...]
    modelled: tuple[float, ...]
    single_measured: float
    single_modelled: float

    @property
    def errors(self) -> list[float]:
        """The relative error of the memory model, by rank."""
        return [real / said - 1 for real, said in zip(self.measured, self.modelled, strict=True)]

    @property
    def beyond(self) -> float:
        """Memory of all ranks beyond that of a single process and of the model, as a fraction of the single process."""
        real = sum(self.measured) - self.single_measured
        said = sum(self.modelled) - self.single_modelled
        return (real - said) / self.single_measured


def run_peaks(workload: Workload, num_microbatches: int, profile_s: float, *, only: str = "") -> list[PeakRun]:
    """Measure a single process, and several plans (or only one) on two ranks, in new processes each."""
    with Ranks() as ranks:
        profile, two = measure_machine(ranks, workload, profile_s, overheads=not only)
    one = replace(two, devices=two.devices[:1])
    before = {name: os.environ.get(name) for name in ALLOCATOR}
    os.environ.update(ALLOCATOR)
    try:
        single = penstock.plan(profile, one, num_microbatches, planner="uniform", schedule="1f1b")
        with Ranks(1) as ranks:
            alone = ranks.on_first(peak_of, workload, num_microbatches, num_microbatches)
        runs = []
        for name, plan in _plans(profile, two, num_microbatches).items():
            if only not in ("", name):
                continue
            with Ranks() as ranks:
                peaks = ranks.on_all(peak_of, workload, num_microbatches, PenstockPlan(plan, profile, two))
            runs.append(
                PeakRun(
                    title=workload.title,
                    num_microbatches=num_microbatches,
                    plan=name,
                    measured=tuple(peaks),
                    modelled=tuple(penstock.evaluate(plan, profile, two).proof.peak_bytes.tolist()),
                    single_measured=alone,
                    single_modelled=float(penstock.evaluate(single, profile, one).proof.peak_bytes[0]),
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
    options = {
        f"balanced, {schedule}": penstock.plan(
            profile, cluster, num_microbatches, planner="balanced", schedule=schedule
        )
        for schedule in SCHEDULES
    }
    return options | {
        "auto": penstock.plan(profile, cluster, num_microbatches, search_space=SearchSpace(replication=False))
    }


def peak_of(_memory: dict[str, Any], workload: Workload, num_microbatches: int, arguments: PenstockPlan | int) -> float:
    """The peak of two iterations on one rank, after two that allocate persistent memory."""
    _warm_up(NARROW[workload.name], num_microbatches, is_ours=isinstance(arguments, PenstockPlan))
    batch = workload.batch(0, num_microbatches)
    gc.collect()
    before = _status("VmRSS")
    contender = make_contender(workload, num_microbatches, arguments)
    for number in range(4):
        if number == 2:
            gc.collect()
            # Resets the peak to the resident memory of now.
            Path("/proc/self/clear_refs").write_text("5")
        contender.step(*batch)
    peak = _status("VmHWM") - before
    if isinstance(contender, PenstockTrainer):
        # Resident on both ranks, and counted at the receiver.
        peak -= contender.pipe._transport.shared_bytes
        dist.barrier()
    return peak


def _warm_up(narrow: Workload, num_microbatches: int, *, is_ours: bool) -> None:
    """Load all code that will run. Compiled schedules and proofs take about 100 MB for any model."""
    make_contender(narrow, num_microbatches, num_microbatches).step(*narrow.batch(0, num_microbatches))
    if is_ours:
        for schedule in (*SCHEDULES, "auto"):
            pipe = narrow_pipeline(narrow, schedule, num_microbatches)
            pipe.step(*narrow.batch(0, num_microbatches))
            pipe.close()


def _status(name: str) -> float:
    text = Path("/proc/self/status").read_text()
    return 1024.0 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def check_memory(runs: list[PeakRun]) -> Iterator[Result]:
    """The worst rank of each workload, and the most that ranks take beyond a single process."""
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
            f"{title}: memory beyond a single process and beyond the model",
            f"<= {BEYOND:.0%}",
            f"{most.beyond:+.1%} of {most.single_measured / 1e6:.0f} MB ({most.plan})",
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
        alone = f"{run.single_measured / 1e6:.0f}, {run.single_modelled / 1e6:.0f} MB"
        lines.append(f"| {run.title}, M = {run.num_microbatches} | {run.plan} | {' | '.join(ranks)} | {alone} |")
    return "\n".join(lines)
