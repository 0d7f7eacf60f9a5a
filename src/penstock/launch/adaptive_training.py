"""Training that changes its plan when measured speeds make another one worth it, or says what that would gain.

A change ends the ranks between two steps, as a signal does, and starts them again with the other plan. The state goes
through a checkpoint: in the run's own directory of checkpoints, or in a temporary one. Checkpoints do not depend on the
plan, so that training goes on with the same numbers.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.adaptation import Adapter, Outcome, Subject, make_replanner
from penstock.bundle import PlanBundle
from penstock.cluster.toml import write_cluster
from penstock.dist import run_dir
from penstock.launch.hosts import Hosts
from penstock.launch.progress import ProgressDisplay
from penstock.launch.runs import Event, Sampled, Stepped, stop_file
from penstock.launch.train_options import TrainOptions
from penstock.launch.training import TrainResult, train
from penstock.plan import Plan, save_plan
from penstock.planners import SearchSpace
from penstock.planners.studies import retarget_to_cluster
from penstock.profile import save_profile
from penstock.simulate import Evaluation, evaluate
from penstock.timeline import build_timeline
from penstock.units import show_seconds

RESTART_S = 15.0
"""Seconds that a change is assumed to take: saving, starting processes with torch, and loading."""


def train_adaptively(
    display: ProgressDisplay,
    options: TrainOptions,
    predicted: Evaluation,
    bundle: PlanBundle,
    *,
    hosts: Hosts,
    is_advice: bool,
    may_stop: bool = False,
) -> tuple[TrainResult, Evaluation]:
    """Train, and follow the measured speeds.

    Args:
        display: Shows progress and every decision.
        options: The options of the ranks.
        predicted: The simulated plan.
        bundle: The plan with its profile and cluster.
        hosts: The hosts of the run.
        is_advice: Whether to state only what a change would gain.
        may_stop: Whether SIGTERM and SIGUSR1 end training after a step, with a checkpoint.

    Returns:
        The result, and the plan that ran last. The result has the steps of all plans.
    """
    replan = make_replanner(bundle.profile, bundle.plan, search_space=SearchSpace(part_rows=False))
    subject = Subject(bundle.profile, bundle.cluster, replan, options.steps, RESTART_S)
    follower = _Follower(display, subject, predicted, is_advice=is_advice)
    steps: list[Stepped] = []
    with run_dir("penstock-adapt-") as folder:
        if not is_advice and options.checkpoint is None:
            options = replace(options, checkpoint=str(folder / "checkpoints"))
        while True:
            result = train(
                display,
                options,
                follower.running,
                hosts=hosts,
                num_ranks=hosts.num_local_ranks(replace(bundle, plan=follower.running.costs.plan)),
                may_stop=may_stop,
                on_event=follower.on_event,
            )
            steps += result.steps
            result = replace(result, steps=tuple(steps))
            change = follower.take_change()
            if change is None or result.failure or result.was_stopped or result.stopping is None:
                follower.close()
                return result, follower.running
            options = _with_plan(options, change, bundle, folder)
            follower.start(evaluate(change, bundle.profile, bundle.cluster), len(steps))


def _with_plan(options: TrainOptions, plan: Plan, bundle: PlanBundle, folder: Path) -> TrainOptions:
    """The options of ranks that train with another plan."""
    profile, cluster, path = folder / "profile.json", folder / "cluster.toml", folder / "plan.json"
    save_profile(bundle.profile, profile)
    cluster.write_text(write_cluster(bundle.cluster))
    save_plan(plan, path)
    return replace(options, plan=str(path), profile=str(profile), cluster=str(cluster))


class _Follower:
    """Follows the ranks of a run, and asks them to end when another plan is worth it."""

    def __init__(self, display: ProgressDisplay, subject: Subject, running: Evaluation, *, is_advice: bool) -> None:
        self._display = display
        self._subject = subject
        self._is_advice = is_advice
        self._adapter = Adapter(subject, running)
        self._change: Outcome | None = None

    @property
    def running(self) -> Evaluation:
        """The plan that runs."""
        return self._adapter.running

    def on_event(self, folder: Path, event: Event) -> None:
        """Take a measured iteration; ask the ranks to end if another plan is worth it."""
        if not isinstance(event, Sampled) or self._change is not None:
            return
        start_s, end_s = np.array(event.start_s), np.array(event.end_s)
        self._adapter.observe(event.step, build_timeline(self.running.proof, start_s, end_s, "measured"))
        outcome = self._adapter.take_outcome()
        if outcome is None:
            return
        note = " (advice only: --adapt advise)" if self._is_advice else ""
        self._display.notice(f"step {event.step}: {outcome.decision.sentence}{note}")
        if outcome.decision.switch and not self._is_advice and event.step + 2 < self._subject.num_steps:
            self._change = outcome
            self._adapter.hold()
            stop_file(folder).write_text("another plan")

    def take_change(self) -> Plan | None:
        """The plan to go on with, for the declared cluster, if one was decided on."""
        if self._change is None or self._change.candidate is None:
            return None
        plan, cluster = self._change.candidate.costs.plan, self._subject.cluster
        return retarget_to_cluster(plan, cluster, plan.cluster.source)

    def start(self, running: Evaluation, step: int) -> None:
        """Go on with another plan."""
        assert self._change is not None, "it was decided on"
        expected_s = self._change.decision.new_s
        self._display.notice(
            f"step {step}: changed to another plan, expected iteration time {show_seconds(expected_s)}"
        )
        self._change = None
        self._adapter.start_plan(running, expected_s)

    def close(self) -> None:
        """Wait for a decision that is being made."""
        self._adapter.close()
