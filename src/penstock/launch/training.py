"""A training run: starts the ranks, shows their progress, and collects the results."""

import hashlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.dist import RankModule, run_dir
from penstock.errors import PenstockError
from penstock.launch.hosts import RANK_PRELOAD, Hosts
from penstock.launch.progress import ProgressDisplay
from penstock.launch.ranks.train_main import state_path
from penstock.launch.runs import (
    Event,
    LocalRanks,
    MemoryMeasured,
    Run,
    Sampled,
    SingleProcess,
    Stepped,
    Stopping,
    find_failure,
    run_ranks,
)
from penstock.launch.train_options import TrainOptions
from penstock.printable_text import escape_text
from penstock.program.slices import save_slices
from penstock.report.analysis.prediction import MIN_ITERATIONS_FOR_SPREAD
from penstock.simulate import Evaluation
from penstock.timeline import Timeline, bubble_fraction, build_timeline
from penstock.units import show_count, show_percent

RANK_MODULE = "penstock.launch.ranks.train_main"
HOSTS_LINE_EVERY_S = 10.0
"""Seconds between two lines about hosts that are missing, if the output is not a terminal."""
LINE_EVERY_S = 2.0
"""Minimum seconds between two progress lines, if the output is not a terminal."""


@dataclass(frozen=True)
class TrainResult:
    """The results of a training run, complete or not."""

    steps: tuple[Stepped, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...]
    was_stopped: bool
    failure: PenstockError | None
    stopping: Stopping | None = None
    """Set if SIGTERM or SIGUSR1 ended the run after a step."""
    states: tuple[bytes, ...] = ()
    """Parameters and buffers of each rank in torch's format, if `keep_state` was set."""
    memory: Mapping[str, MemoryMeasured] = field(default_factory=dict)
    """By device: the memory of the ranks of this host that have accelerators."""
    changes: tuple[Any, ...] = ()
    """Changes of the plan during the run (`penstock.launch.elastic.PlanChange`)."""

    @property
    def step_s(self) -> float | None:
        """The median duration of a step. The first one, a warm-up, counts only if there is no other."""
        seconds = [step.seconds for step in self.steps[1:] or self.steps]
        return statistics.median(seconds) if seconds else None

    @property
    def step_quartiles_s(self) -> tuple[float, float] | None:
        """The lower and upper quartile of the durations; None for too few steps."""
        seconds = [step.seconds for step in self.steps[1:]]
        if len(seconds) < MIN_ITERATIONS_FOR_SPREAD:
            return None
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return low, high

    @property
    def rows_per_s(self) -> float | None:
        """The median of the rows trained per second."""
        rates = [step.num_rows / step.seconds for step in self.steps[1:] or self.steps]
        return statistics.median(rates) if rates else None


def loss_difference(one: Stepped, other: Stepped) -> float:
    """The difference of two losses relative to the first; 0 if both are NaN."""
    if one.loss == other.loss or (math.isnan(one.loss) and math.isnan(other.loss)):
        return 0.0
    difference = abs(one.loss - other.loss) / abs(one.loss) if one.loss else abs(other.loss)
    return difference if math.isfinite(difference) else math.inf


def train_command(options: TrainOptions, hosts: Hosts, num_ranks: int) -> list[str]:
    """The standalone command that trains on the ranks of this host, without `penstock train`."""
    return hosts.command(num_ranks, RANK_MODULE, options.arguments)


def train(
    display: ProgressDisplay,
    options: TrainOptions,
    predicted: Evaluation,
    *,
    hosts: Hosts,
    num_ranks: int,
    single_process: bool = False,
    keep_state: bool = False,
    reference: bytes | None = None,
    may_stop: bool = False,
    on_event: Callable[[Path, Event], None] = lambda _folder, _event: None,
) -> TrainResult:
    """Train with the plan on the ranks of this host, or in a single process.

    Args:
        display: Shows progress.
        options: The options of the ranks.
        predicted: The simulated plan.
        hosts: The hosts of the run.
        num_ranks: The number of ranks on this host.
        single_process: Train the whole model in one process instead.
        keep_state: Return parameters and buffers, and in a single process the gradients of every step.
        reference: The state of a single process. Every step then uses its gradients.
        may_stop: Whether SIGTERM and SIGUSR1 end training after a step, with a checkpoint.
        on_event: Called with the directory of the run and every event.
    """

    def follow(run: Run, event: Event) -> None:
        progress.update(run, event)
        on_event(folder, event)

    with run_dir("penstock-train-") as folder:
        arguments = [*options.arguments, "--events", str(folder)]
        if single_process:
            arguments.append("--single-process")
        else:
            # The program is proved already. Each rank loads its own actions.
            save_slices(predicted.program, folder / "slices")
            arguments += ["--slices", str(folder / "slices")]
        if keep_state:
            arguments.append("--keep-state")
        if reference is not None:
            (folder / "reference").write_bytes(reference)
            arguments += ["--reference-gradients", str(folder / "reference")]
        num_devices = len(predicted.costs.plan.devices)
        label = "in a single process" if single_process else f"on {show_count(num_devices, 'rank')}"
        with display.progress(f"starting training {label}") as show, ExitStack() as stack:
            progress = StepProgress(display, show, options.steps, predicted, label)
            link, place = None, None
            if hosts.nnodes > 1:
                link = stack.enter_context(hosts.link(num_ranks, _describe_run(options, predicted)))
                place = link.join(options.startup_s, _JoinProgress(display, show))
            launch = (
                SingleProcess((sys.executable, "-m", RANK_MODULE, *arguments))
                if single_process
                else LocalRanks(RankModule(RANK_MODULE, arguments, RANK_PRELOAD), num_ranks, place)
            )
            first_rank = 0 if place is None else place.first_rank
            ranks = range(1) if single_process else range(first_rank, first_rank + num_ranks)
            run = run_ranks(
                launch,
                folder,
                ranks,
                devices=[] if single_process else [predicted.costs.plan.devices[rank] for rank in ranks],
                stopped_s=options.timeout,
                link=link,
                may_stop=may_stop,
                on_event=follow,
                on_output=lambda line: display.notice(escape_text(line)),
            )
        if display.verbose and run.log.strip():
            display.notice(run.log.rstrip())
        failure = find_failure(run)
        is_complete = failure is None and not run.was_stopped
        paths = [state_path(folder, rank) for rank in ranks] if keep_state and is_complete else []
        return TrainResult(
            steps=tuple(run.steps),
            timelines=tuple(progress.timelines(run.samples)),
            notes=tuple(run.notes),
            was_stopped=run.was_stopped,
            failure=failure,
            stopping=run.stopping,
            states=tuple(path.read_bytes() for path in paths),
            memory={state.device: state.memory for state in run.ranks if state.device and state.memory is not None},
        )


def _describe_run(options: TrainOptions, predicted: Evaluation) -> str:
    """What must be the same on all hosts."""
    plan = predicted.costs.plan
    digest = hashlib.sha256(msgspec.json.encode(plan)).hexdigest()[:12]
    return f"plan {digest}, {options.steps} steps of {options.global_batch_size} rows, seed {options.seed}"


class _JoinProgress:
    """Shows which hosts are missing: a line that changes on a terminal, otherwise a line now and then."""

    def __init__(self, display: ProgressDisplay, show: Callable[[str], None]) -> None:
        self._display = display
        self._show = show
        self._next_s = time.monotonic() + HOSTS_LINE_EVERY_S

    def __call__(self, text: str) -> None:
        self._show(text)
        if not self._display.is_terminal and time.monotonic() > self._next_s:
            self._next_s = time.monotonic() + HOSTS_LINE_EVERY_S
            self._display.notice(text)


class StepProgress:
    """Shows progress: one line that changes on a terminal, otherwise a line now and then."""

    def __init__(
        self,
        display: ProgressDisplay,
        show: Callable[[str], None],
        num_steps: int,
        predicted: Evaluation | None,
        label: str,
    ) -> None:
        self._display = display
        self._show = show
        self._num_steps = num_steps
        self._predicted = predicted
        self._label = label
        self._bubble = ""
        self._shown_s = 0.0
        self._is_finite = True

    def update(self, _run: Run, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Sampled) and self._predicted is not None:
            self._bubble = f", bubble {show_percent(bubble_fraction(self._timeline(event)))}"
        if not isinstance(event, Stepped):
            return
        if self._is_finite and not math.isfinite(event.loss):
            self._is_finite = False
            self._display.warn(
                f"{self._label}: the loss is not finite from step {event.step} on; --check-finite stops at the first "
                "value that is not finite and names its layer"
            )
        rate = event.num_rows / event.seconds if event.seconds > 0 else 0.0
        step = f"step {event.step} ({event.step + 1} of {self._num_steps})"
        line = f"{self._label}: {step}, loss {event.loss:.5g}, {rate:,.1f} rows/s{self._bubble}"
        self._show(line)
        now_s = time.monotonic()
        is_last = event.step + 1 == self._num_steps
        if is_last or (not self._display.is_terminal and now_s - self._shown_s >= LINE_EVERY_S):
            self._shown_s = now_s
            self._display.show(line)

    def timelines(self, samples: Sequence[Sampled]) -> list[Timeline]:
        """The measured iterations of the predicted plan. The first, a warm-up, counts only if there is no other."""
        if self._predicted is None:
            return []
        return [self._timeline(sample) for sample in samples[1:] or samples]

    def _timeline(self, sample: Sampled) -> Timeline:
        assert self._predicted is not None
        start_s, end_s = np.array(sample.start_s), np.array(sample.end_s)
        return build_timeline(self._predicted.proof, start_s, end_s, "measured")
