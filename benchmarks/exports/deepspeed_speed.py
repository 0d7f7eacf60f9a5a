"""Target 3: DeepSpeed on two ranks with the plan's cuts, against its own partitions, on an uneven model."""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.exports.deepspeed_rank import build_deepspeed
from benchmarks.exports.measured_plan import NUM_MICROBATCHES, Log, plan_measured
from benchmarks.results import Result
from benchmarks.runtime import rank_functions, workloads
from benchmarks.runtime.measurements import spread
from benchmarks.runtime.ranks import Ranks

PLANNED = "planned"
OWN = ("parameters", "uniform")
LEAST_GAIN = 1.1
SAME_LOSS = 1e-5


class DeepSpeedSpeed(NamedTuple):
    """Iteration times of one partition each, in turns."""

    title: str
    round_s: dict[str, tuple[float, ...]]
    cuts: dict[str, list[int]]
    loss_error: float
    """The largest relative difference between losses of different partitions."""


def run_deepspeed_speed(log: Log, *, quick: bool) -> DeepSpeedSpeed:
    """Measure the VGG of benchmarks/runtime: most of its work is in its first layers, most parameters in its last."""
    workload = (workloads.QUICK if quick else workloads.FULL)["vgg"]
    extensions = Path(sys.prefix, "torch-extensions")
    os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", TORCH_EXTENSIONS_DIR=str(extensions))
    # DeepSpeed compiles a part of itself; a run that was killed meanwhile leaves a lock that it would wait for.
    for lock in extensions.rglob("lock"):
        lock.unlink()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ninja
    with Ranks() as ranks, tempfile.TemporaryDirectory() as name:
        log("  profile")
        plan = plan_measured(ranks, workload, "deepspeed", Path(name), quick=quick)
        cuts: dict[str, list[int]] = {}
        losses: list[list[float]] = []
        for partition in (None, *OWN):
            title = partition or PLANNED
            log(f"  building {title}")
            answers = ranks.on_all(build_deepspeed, title, workload, NUM_MICROBATCHES, plan.folder, partition)
            cuts[title] = answers[0][0]
            losses.append(answers[0][1])
        turns: dict[str, list[float]] = {title: [] for title in cuts}
        for number in range(2 if quick else 8):
            log(f"  round {number + 1}")
            for title in cuts if number % 2 else reversed(cuts):
                found = ranks.on_all(rank_functions.run, title, workload, NUM_MICROBATCHES, workload.steps, True)
                turns[title].append(max(found))
    return DeepSpeedSpeed(
        title=f"{workload.title}, M = {NUM_MICROBATCHES}",
        round_s={title: tuple(seconds) for title, seconds in turns.items()},
        cuts=cuts,
        loss_error=max(abs(a - b) / abs(a) for other in losses[1:] for a, b in zip(losses[0], other, strict=True)),
    )


def check_deepspeed_speed(run: DeepSpeedSpeed) -> Iterator[Result]:
    """The targets."""
    yield Result(
        f"{run.title}: DeepSpeed's losses do not depend on the cuts",
        f"<= {SAME_LOSS:g}",
        f"{run.loss_error:.1e}",
        run.loss_error <= SAME_LOSS,
    )
    own = min(OWN, key=lambda title: statistics.median(run.round_s[title]))
    gain = spread([other / mine for mine, other in zip(run.round_s[PLANNED], run.round_s[own], strict=True)])
    yield Result(
        f"{run.title}: DeepSpeed with the plan's cuts over the better of its own partitions",
        f">= {LEAST_GAIN} x",
        f"{gain} ({own} {run.cuts[own]}, planned {run.cuts[PLANNED]})",
        gain.middle >= LEAST_GAIN,
        is_over_all=True,
    )
