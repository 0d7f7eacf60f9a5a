"""Follows a run: collects its measured iterations, and decides in the background whether to change plans."""

import logging
import math
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.adaptation.decision import Decision, Replan, Situation, decide, evaluate_on
from penstock.adaptation.measurement import Measurement, measure
from penstock.adaptation.speeds import MIN_SAMPLES, Speeds, estimate_speeds
from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.profile import Profile
from penstock.simulate import Evaluation
from penstock.timeline import Timeline

_log = logging.getLogger(__name__)

MAX_HISTORY = 1000
MAX_PAUSE = 128
"""Measured iterations after which an uncertain gain is looked at again, at most."""


class Outcome(NamedTuple):
    """A decision, the step after which it was asked for, and the plan that it is about."""

    step: int
    decision: Decision
    candidate: Evaluation | None
    """The other plan, evaluated on the estimated cluster."""


@dataclass(frozen=True, eq=False)
class Subject:
    """The run that is followed: its profile, the declared cluster, and how to plan."""

    profile: Profile
    cluster: Cluster
    replan: Callable[[Cluster, Sequence[Plan]], Evaluation]
    """Plans for a cluster; the plans that ran before are candidates too."""
    num_steps: int
    restart_s: float
    """Seconds that a change of plans takes beside moving state, on the cluster."""


class Adapter:
    """Decides when a run changes its plan.

    `observe` takes measured iterations. It returns at once: a decision, which takes a planner's time, is made in a
    thread and collected by `take_outcome`. It is made when a speed has changed since the last one, or when a gain was
    uncertain and more was measured since.

    Args:
        subject: The run.
        running: The plan that runs, evaluated on the cluster that it was made for.
        in_background: Whether to decide in a thread.
    """

    def __init__(self, subject: Subject, running: Evaluation, *, in_background: bool = True) -> None:
        self._subject = subject
        self._in_background = in_background
        self._history: list[Measurement] = []
        self._considered = Speeds()
        self._plans: dict[object, Plan] = {}
        self._thread: threading.Thread | None = None
        self._outcome: Outcome | None = None
        self._pause = MIN_SAMPLES
        self._is_held = False
        self._surprise = 0.0
        self._wait: int | None = None
        """Measured iterations until an uncertain gain is looked at again."""
        self._num_measured = 0
        self.start_plan(running)

    @property
    def speeds(self) -> Speeds:
        """The speeds as estimated now."""
        return estimate_speeds(self._history)

    @property
    def running(self) -> Evaluation:
        """The plan that runs."""
        return self._running

    def start_plan(self, running: Evaluation, expected_s: float | None = None) -> None:
        """Go on with another plan. Its first iteration, a warm-up, does not count.

        Args:
            running: The plan, evaluated on the cluster that it was made for.
            expected_s: The iteration time that the decision expected.
        """
        self._expected_s = expected_s
        self._running = running
        self._plans[running.costs.plan.stages] = running.costs.plan
        self._expected = evaluate_on(running, self._subject.profile, self._subject.cluster)
        self._num_measured = 0
        self._is_held = False

    def hold(self) -> None:
        """Decide nothing until the next plan has started: the run is about to change to it."""
        self._is_held = True

    def observe(self, step: int, measured: Timeline) -> None:
        """Take a measured iteration of the plan that runs."""
        self._num_measured += 1
        if self._num_measured == 1:
            return
        self._history = [*self._history[-MAX_HISTORY:], measure(self._expected, measured)]
        if self._expected_s is not None and self._num_measured == MIN_SAMPLES + 1:
            found_s = statistics.median(item.iteration_s for item in self._history[-MIN_SAMPLES:])
            self._surprise = abs(math.log(found_s / self._expected_s))
        speeds = self.speeds
        if self._wait is not None:
            self._wait -= 1
        is_due = speeds.differ_from(self._considered) or (self._wait is not None and self._wait <= 0)
        is_free = self._thread is None and self._outcome is None and not self._is_held
        if is_free and is_due and self._num_measured > MIN_SAMPLES:
            self._start(step, speeds)

    def close(self) -> None:
        """Wait for a decision that is being made."""
        if self._thread is not None:
            self._thread.join()

    def take_outcome(self) -> Outcome | None:
        """The decision that was made since the last call, if there is one."""
        if self._outcome is None or (self._thread is not None and self._thread.is_alive()):
            return None
        outcome, self._outcome, self._thread = self._outcome, None, None
        return outcome

    def _start(self, step: int, speeds: Speeds) -> None:
        recent = self._history[-MIN_SAMPLES:]
        subject = self._subject
        situation = Situation(
            self._running,
            subject.profile,
            subject.cluster,
            speeds,
            [item.iteration_s for item in recent],
            subject.num_steps - step - 1,
            subject.restart_s,
            self._surprise,
        )
        known = tuple(self._plans.values())

        def replan(cluster: Cluster) -> Evaluation:
            return subject.replan(cluster, known)

        self._considered = speeds
        if not self._in_background:
            self._decide(step, situation, replan)
            return
        self._thread = threading.Thread(
            target=self._decide, args=(step, situation, replan), name="penstock-adapter", daemon=True
        )
        self._thread.start()

    def _decide(self, step: int, situation: Situation, replan: Replan) -> None:
        try:
            decision, candidate = decide(situation, replan)
        except Exception:  # the run must not depend on it
            _log.exception("no decision about another plan")
            self._thread = None
            return
        is_uncertain = 0 < decision.gain_s <= decision.uncertainty_s
        self._wait = self._pause if is_uncertain else None
        self._pause = min(MAX_PAUSE, 2 * self._pause) if is_uncertain else MIN_SAMPLES
        self._outcome = Outcome(step, decision, candidate)
