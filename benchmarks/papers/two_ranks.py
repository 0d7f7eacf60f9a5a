"""Bi-Partition on two real ranks: models of 3 and 5 equal heavy layers, which one set of cuts cannot balance."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

import penstock
from benchmarks.records import Task
from benchmarks.results import Result
from benchmarks.runtime.contenders import PenstockPlan
from benchmarks.runtime.machine_profile import measure_machine
from benchmarks.runtime.measurements import spread
from benchmarks.runtime.plans import Option
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.speed import Entry, build_entry, duel
from benchmarks.runtime.workloads import Workload, mlp
from penstock import SearchSpace

NUM_MICROBATCHES = 8
TARGET = 1.1
SAME_LOSS = 1e-5
SIZES = {3: (64, 2048), 5: (96, 1536)}
"""Micro-batch size and width by number of layers."""
QUICK_SIZES = {3: (32, 512)}
Log = Callable[[str], None]


class TwoSets(msgspec.Struct, frozen=True):
    """Bi-Partition and the best plan with one set of cuts, in paired rounds."""

    num_layers: int
    rows: int
    width: int
    gain: tuple[float, ...]
    """By round."""
    predicted: float
    loss_error: float


def tasks_of(*, quick: bool) -> list[Task]:
    """A task per model."""
    return [Task("two ranks", (layers, *size)) for layers, size in (QUICK_SIZES if quick else SIZES).items()]


def run_task(task: Task, log: Log, *, quick: bool) -> TwoSets:
    """Measure a model."""
    layers, rows, width = (int(value) for value in task.about)
    name = f"{layers} layers of {width}"
    workload = Workload(name, name, partial(mlp, (width,) * (layers + 1)), rows, (width,), width, 2)
    with Ranks() as ranks:
        log(f"  {name}: profile")
        profile, cluster = measure_machine(ranks, workload, 1.0 if quick else 15.0)
        one_set = penstock.plan(
            profile, cluster, NUM_MICROBATCHES, search_space=SearchSpace(replication=False, two_cuts=False)
        )
        two_sets = penstock.plan(profile, cluster, NUM_MICROBATCHES, planner="bipartition", schedule="auto")
        options = [Option("two sets", two_sets), Option("one set", one_set)]
        entries = [
            Entry(option.name, option.detail, PenstockPlan(option.plan, profile, cluster), option) for option in options
        ]
        losses = [build_entry(ranks, workload, NUM_MICROBATCHES, entry) for entry in entries]
        predicted = [penstock.evaluate(option.plan, profile, cluster).timeline.iteration_s for option in options]
        log(f"  {name}: rounds")
        gain = duel(ranks, workload, NUM_MICROBATCHES, (entries[0], entries[1]), 4 if quick else 20)
    return TwoSets(
        layers,
        rows,
        width,
        gain,
        predicted[1] / predicted[0],
        max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True)),
    )


def check_two_sets(runs: Sequence[TwoSets]) -> Iterator[Result]:
    """The gain of every model."""
    for run in runs:
        what = f"{run.num_layers} layers of {run.width}, {run.rows} rows, M = {NUM_MICROBATCHES}"
        yield Result(
            f"{what}: losses of both plans",
            f"<= {SAME_LOSS:g}",
            f"{run.loss_error:.1e}",
            run.loss_error <= SAME_LOSS,
        )
        gain = spread(run.gain)
        yield Result(
            f"{what}: Bi-Partition over one set of cuts",
            f">= {TARGET} x",
            f"{gain}, predicted {run.predicted:.3f}",
            gain.middle >= TARGET,
            is_over_all=True,
        )


def table(runs: Sequence[TwoSets]) -> str:
    """The gains."""
    lines = ["### Bi-Partition on two real ranks", "", "| model | measured | predicted |", "|---|---:|---:|"]
    for run in runs:
        title = f"{run.num_layers} layers of {run.width}, {run.rows} rows"
        lines.append(f"| {title} | {spread(run.gain)} | {run.predicted:.3f} |")
    return "\n".join(lines)
