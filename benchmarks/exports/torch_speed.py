"""Target 2: torch's runtime with an exported schedule, against torch's own best schedule, and the prediction."""

import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.exports.exported_torch import build_exported
from benchmarks.exports.measured_plan import NUM_MICROBATCHES, Log, plan_measured
from benchmarks.results import Result
from benchmarks.runtime import rank_functions, workloads
from benchmarks.runtime.contenders import NUM_STAGES, TORCH_KINDS, TorchPlan
from benchmarks.runtime.measurements import SINGLE_PROCESS, Spread, spread
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.speed import search_cuts
from benchmarks.runtime.stage_cuts import equal_cuts
from benchmarks.runtime.workloads import Workload

EXPORTED = "exported"
CLOSE = 0.07
SAME_LOSS = 1e-5


class TorchSpeed(NamedTuple):
    """The exported schedule and torch's own best, in paired rounds."""

    title: str
    baseline: str
    stages: str
    over_baseline: tuple[float, ...]
    """By round: the speed-up of the exported schedule over torch's best."""
    measured_s: tuple[float, ...]
    predicted_s: float
    loss_error: float
    """The largest relative difference to the losses of a single process."""


def run_torch_speed(log: Log, *, quick: bool) -> TorchSpeed:
    """Plan the GPT of benchmarks/runtime for torch, export it, and measure it beside torch's own schedules."""
    workload = (workloads.QUICK if quick else workloads.FULL)["gpt"]
    kinds = ("1f1b",) if quick else TORCH_KINDS
    with Ranks() as ranks, tempfile.TemporaryDirectory() as name:
        log("  profile")
        plan = plan_measured(ranks, workload, "torch", Path(name), quick=quick)
        known = ranks.on_all(rank_functions.build, SINGLE_PROCESS, workload, NUM_MICROBATCHES, NUM_MICROBATCHES)[0]
        answers = ranks.on_all(
            build_exported, EXPORTED, workload, NUM_MICROBATCHES, plan.folder, rank_functions.NUM_CHECKED
        )
        losses = next(found for found in answers if None not in found)
        contenders = {}
        for kind in kinds:
            log(f"  trying cuts of torch's {kind}")
            cuts = equal_cuts(plan.profile.num_units, NUM_STAGES[kind], 1)
            if not quick:
                cuts = search_cuts(ranks, workload, NUM_MICROBATCHES, kind, plan.profile, 2)
            contenders[kind] = cuts
            ranks.on_all(
                rank_functions.try_out, kind, workload, NUM_MICROBATCHES, TorchPlan(kind, NUM_MICROBATCHES, cuts)
            )
        turn = partial(_turn, ranks, workload)
        log("  the fastest of torch's own")
        seconds = {kind: [turn(kind) for _ in range(2 if quick else 4)] for kind in contenders}
        best = min(seconds, key=lambda kind: statistics.median(seconds[kind]))
        pairs = []
        for number in range(2 if quick else 16):
            log(f"  round {number + 1}")
            order = (EXPORTED, best) if number % 2 else (best, EXPORTED)
            found = {item: turn(item) for item in order}
            pairs.append((found[EXPORTED], found[best]))
    return TorchSpeed(
        title=f"{workload.title}, M = {NUM_MICROBATCHES}",
        baseline=f"{best}, cut before {', '.join(map(str, contenders[best]))}",
        stages=plan.stages,
        over_baseline=tuple(other / mine for mine, other in pairs),
        measured_s=tuple(mine for mine, _ in pairs),
        predicted_s=plan.predicted_s,
        loss_error=max(abs(a - b) / abs(a) for a, b in zip(known, losses, strict=True)),
    )


def _turn(ranks: Ranks, workload: Workload, name: str) -> float:
    return float(max(ranks.on_all(rank_functions.run, name, workload, NUM_MICROBATCHES, workload.steps, True)))


def check_torch_speed(run: TorchSpeed) -> Iterator[Result]:
    """The targets."""
    gain: Spread = spread(run.over_baseline)
    measured = statistics.median(run.measured_s)
    error = 1 - run.predicted_s / measured
    yield Result(
        f"{run.title}: losses of the exported schedule as in one process",
        f"<= {SAME_LOSS:g}",
        f"{run.loss_error:.1e}",
        run.loss_error <= SAME_LOSS,
    )
    yield Result(
        f"{run.title}: exported schedule over torch's best",
        ">= 1 x",
        f"{gain} ({run.baseline}; exported: {run.stages})",
        gain.middle >= 1,
        is_over_all=True,
    )
    yield Result(
        f"{run.title}: predicted with --engine torch against measured",
        f"<= {CLOSE:.0%}",
        f"{error:+.1%} ({run.predicted_s * 1e3:.0f} and {measured * 1e3:.0f} ms)",
        abs(error) <= CLOSE,
        is_over_all=True,
    )
