"""A training for somebody who watches: starts the ranks, shows how far they are, and collects what came of it."""

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import PenstockError
from penstock.launch.events import Event, Sampled, Stepped
from penstock.launch.failures import failure_of
from penstock.launch.hosts import Hosts
from penstock.launch.process import Run, run_ranks
from penstock.launch.progress import ProgressDisplay
from penstock.launch.ranks.train_main import state_path
from penstock.launch.run_dir import run_folder
from penstock.launch.train_options import Training
from penstock.report import shown_name
from penstock.report.analysis.prediction import FEWEST_SPREAD
from penstock.simulate import Evaluation
from penstock.timeline import Timeline, bubble_fraction, build_timeline
from penstock.units import counted, show_percent

RANK_MODULE = "penstock.launch.ranks.train_main"
LINE_EVERY_S = 2.0
"""Where nobody watches a terminal, a line of progress comes at most this often."""


@dataclass(frozen=True)
class Trained:
    """What came of a training, as far as it came."""

    steps: tuple[Stepped, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...]
    was_stopped: bool
    failure: PenstockError | None
    states: tuple[bytes, ...] = ()
    """Parameters and buffers of each rank, as torch saves them, if they were asked for."""

    @property
    def step_s(self) -> float | None:
        """A whole step, in the median; the first, which warms up, counts only if there is no other."""
        taken = [step.seconds for step in self.steps[1:] or self.steps]
        return statistics.median(taken) if taken else None

    @property
    def step_quartiles_s(self) -> tuple[float, float] | None:
        """Between these are half of the steps; None for too few to tell."""
        taken = [step.seconds for step in self.steps[1:]]
        if len(taken) < FEWEST_SPREAD:
            return None
        low, _, high = statistics.quantiles(taken, n=4, method="inclusive")
        return low, high

    @property
    def rows_per_s(self) -> float | None:
        """Rows trained a second, in the median."""
        rates = [step.num_rows / step.seconds for step in self.steps[1:] or self.steps]
        return statistics.median(rates) if rates else None


def command_of(asked: Training, hosts: Hosts, num_ranks: int, *more: str) -> list[str]:
    """The torchrun command for the ranks of this host."""
    return hosts.torchrun(num_ranks, RANK_MODULE, [*asked.words, *more])


def alone_command(asked: Training, *more: str) -> list[str]:
    """The command that trains in one process."""
    return [sys.executable, "-m", RANK_MODULE, *asked.words, *more]


def train(
    screen: ProgressDisplay,
    asked: Training,
    predicted: Evaluation,
    *,
    hosts: Hosts,
    num_ranks: int,
    alone: bool = False,
    keep_state: bool = False,
    follow: bytes | None = None,
) -> Trained:
    """Train by the plan on the ranks of this host, or in one process.

    `follow` is the state of a training in one process whose gradients are to be taken.
    """
    with run_folder("penstock-train-") as folder:
        more = ["--report", str(folder), *(["--alone"] if alone else []), *(["--keep-state"] if keep_state else [])]
        if follow is not None:
            (folder / "follow").write_bytes(follow)
            more += ["--follow", str(folder / "follow")]
        ranks = range(1) if alone else _ranks_here(predicted, hosts, num_ranks)
        what = "in one process" if alone else f"on {counted(len(predicted.costs.plan.devices), 'rank')}"
        with screen.progress(f"starting to train {what}") as show:
            watch = _Watch(screen, show, asked.steps, predicted, what)
            run = run_ranks(
                alone_command(asked, *more) if alone else command_of(asked, hosts, num_ranks, *more),
                folder,
                ranks,
                watch=watch.see,
                said=lambda line: screen.notice(shown_name(line)),
            )
        if screen.verbose and run.log.strip():
            screen.notice(run.log.rstrip())
        failure = failure_of(run)
        is_whole = failure is None and not run.was_stopped
        paths = [state_path(folder, rank) for rank in ranks] if keep_state and is_whole else []
        return Trained(
            steps=tuple(run.steps),
            timelines=tuple(watch.timelines(run.samples)),
            notes=tuple(run.notes),
            was_stopped=run.was_stopped,
            failure=failure,
            states=tuple(path.read_bytes() for path in paths),
        )


def _ranks_here(predicted: Evaluation, hosts: Hosts, num_ranks: int) -> range:
    """The numbers of the ranks of this host. Torchrun counts through the hosts in their order."""
    if hosts.nnodes == 1:
        return range(num_ranks)
    costs = predicted.costs
    used = [device.host for device in costs.cluster.devices if device.name in costs.plan.devices]
    names = list(dict.fromkeys(used))
    before = sum(used.count(name) for name in names[: hosts.node_rank])
    if len(names) != hosts.nnodes:
        before = num_ranks * hosts.node_rank
    return range(before, before + num_ranks)


class _Watch:
    """Shows how far it is: one line that changes on a terminal, else plain lines now and then."""

    def __init__(
        self, screen: ProgressDisplay, show: Callable[[str], None], num_steps: int, predicted: Evaluation, what: str
    ) -> None:
        self._screen = screen
        self._show = show
        self._num_steps = num_steps
        self._predicted = predicted
        self._what = what
        self._bubble = ""
        self._told_s = 0.0
        self._is_finite = True

    def see(self, _run: Run, event: Event) -> None:
        """One event."""
        if isinstance(event, Sampled):
            self._bubble = f", bubble {show_percent(bubble_fraction(self._timeline(event)))}"
        if not isinstance(event, Stepped):
            return
        if self._is_finite and not math.isfinite(event.loss):
            self._is_finite = False
            lost = f"{self._what}: the loss is not finite from step {event.step} on"
            self._screen.warn(f"{lost}; --check-finite stops, and says where that begins")
        rate = event.num_rows / event.seconds if event.seconds > 0 else 0.0
        done = f"step {event.step} ({event.step + 1} of {self._num_steps})"
        line = f"{self._what}: {done}, loss {event.loss:.5g}, {rate:,.1f} rows/s{self._bubble}"
        self._show(line)
        now = time.monotonic()
        is_last = event.step + 1 == self._num_steps
        if is_last or (not self._screen.is_terminal and now - self._told_s >= LINE_EVERY_S):
            self._told_s = now
            self._screen.show(line)

    def timelines(self, samples: Sequence[Sampled]) -> list[Timeline]:
        """The measured iterations; the first step warms up, and counts only if there is no other."""
        return [self._timeline(sample) for sample in samples[1:] or samples]

    def _timeline(self, sample: Sampled) -> Timeline:
        start_s, end_s = np.array(sample.start_s), np.array(sample.end_s)
        return build_timeline(self._predicted.proof, start_s, end_s, "measured")
