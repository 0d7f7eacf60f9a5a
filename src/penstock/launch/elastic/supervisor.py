"""The supervisor of elastic training: generations of ranks one after the other, until all steps are done."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from penstock.bundle import PlanBundle
from penstock.cluster.toml import write_cluster
from penstock.dist import Launcher, RankTemplate, can_fork, memory_dir, run_dir
from penstock.errors import PenstockError, RunError
from penstock.launch.elastic.copy_memory import check_copy_memory, copy_bytes
from penstock.launch.elastic.decisions import (
    Absence,
    PlanChange,
    due_checks,
    effective_changes,
    find_loss,
    wanted_losses,
    why_not,
)
from penstock.launch.elastic.devices import DeviceChecks
from penstock.launch.elastic.elastic_options import ElasticOptions
from penstock.launch.elastic.generation import Generation
from penstock.launch.elastic.plan_shelf import PlanShelf, ShelvedPlan
from penstock.launch.hosts import RANK_PRELOAD
from penstock.launch.progress import ProgressDisplay
from penstock.launch.runs import Event, Resumed, Run, RunFailed, Stepped, find_failure
from penstock.launch.train_options import TrainOptions
from penstock.launch.training import StepProgress, TrainResult
from penstock.printable_text import escape_text
from penstock.profile import save_profile
from penstock.program.slices import save_slices
from penstock.simulate import Evaluation
from penstock.timeline import Timeline
from penstock.units import show_bytes, show_count

FORGIVEN = 10
"""A device that has worked for this many times the first wait is checked as soon as after its first loss again."""


def train_elastic(
    display: ProgressDisplay,
    options: TrainOptions,
    elastic: ElasticOptions,
    predicted: Evaluation,
    bundle: PlanBundle,
    *,
    may_stop: bool = False,
    changes: Sequence[PlanChange] = (),
) -> TrainResult:
    """Train with the plan on the devices of this host, and go on when some are lost or back.

    Args:
        display: Shows progress.
        options: The options of the ranks.
        elastic: The options of the supervisor.
        predicted: The simulated plan.
        bundle: The plan with its profile and cluster.
        may_stop: Whether SIGTERM and SIGUSR1 end training after a step, with a checkpoint.
        changes: Changes of the plan to make after these steps, as those of another run. Its losses are then the same.

    Returns:
        The result. The steps are those that count: one that was repeated is there once. `changes` has what happened.
    """
    with ExitStack() as stack:
        memory = stack.enter_context(memory_dir("penstock-elastic-"))
        check_copy_memory(predicted, memory)
        every = "step" if elastic.copy_every == 1 else show_count(elastic.copy_every, "step")
        display.notice(f"a copy of the state ({show_bytes(copy_bytes(predicted))}) in memory every {every}")
        supervisor = _Supervisor(display, options, elastic, predicted, bundle, memory, stack, may_stop)
        return supervisor.run(effective_changes(changes))


class _Supervisor:
    def __init__(
        self,
        display: ProgressDisplay,
        options: TrainOptions,
        elastic: ElasticOptions,
        predicted: Evaluation,
        bundle: PlanBundle,
        memory: Path,
        stack: ExitStack,
        may_stop: bool,
    ) -> None:
        self._display, self._elastic = display, elastic
        self._predicted, self._may_stop = predicted, may_stop
        self._cluster = bundle.cluster
        self._hosts = {item.name: item.host for item in bundle.cluster.devices}
        self._copies = memory / "copies"
        plans = memory / "plans"
        for folder in (self._copies, plans):
            folder.mkdir()
        # Plans name their profile and cluster relative to their file.
        save_profile(bundle.profile, plans / "profile.json")
        (plans / "cluster.toml").write_text(write_cluster(bundle.cluster))
        options = replace(options, profile=str(plans / "profile.json"), cluster=str(plans / "cluster.toml"))
        self._options = options
        save_slices(predicted.program, plans / "slices")
        used = tuple(item.name for item in bundle.cluster.devices if item.name in bundle.plan.devices)
        original = ShelvedPlan(Path(options.plan), plans / "slices", used, predicted.timeline.iteration_s)
        beside = stack.enter_context(Launcher(has_failed=lambda _process, _code: False))
        self._shelf = PlanShelf(beside, plans, options.arguments, original)
        numbers = self._numbers_on_hosts()
        self._template = stack.enter_context(RankTemplate(memory, RANK_PRELOAD)) if can_fork() else None
        self._checks = DeviceChecks(beside, self._template, memory, numbers, options.device)
        self._lost: frozenset[str] = frozenset()
        self._absences: dict[str, Absence] = {}
        self._steps: dict[int, Stepped] = {}
        self._changes: list[PlanChange] = []
        self._pending: PlanChange | None = None
        """The change whose first step is not known yet."""
        self._working: set[str] = set()
        """Lost devices that a check has found to work."""
        self._returning: str | None = None
        """The device for which the ranks were asked to end."""
        self._returned_s: dict[str, float] = {}
        self._num_losses: dict[str, int] = {}

    def run(self, planned: list[PlanChange]) -> TrainResult:
        """Run generations until all steps are done, a failure cannot be survived, or a signal ends the run."""
        number, num_restarts = 0, 0
        if planned and not planned[0].step:
            self._set_lost(planned[0].lost, planned.pop(0).why)
        runs: list[Run] = []
        samples: list[Timeline] = []
        failure: PenstockError | None = None
        while True:
            until = planned[0].step if planned else None
            run, timelines = self._run_one(number, until, is_planned=bool(planned))
            runs.append(run)
            samples += timelines
            number += 1
            failure = find_failure(run)
            if run.paused is not None and failure is None:
                if planned:
                    change = planned.pop(0)
                    self._set_lost(change.lost, change.why)
                else:
                    self._use_again()
                continue
            if failure is None or run.was_stopped:
                break
            loss = find_loss(run)
            if loss is None:
                break
            num_restarts += 1
            lost = self._lost | loss.devices
            limits = self._elastic.minimum, self._elastic.restarts
            reason = why_not(len(self._hosts), len(lost), num_restarts, *limits)
            if reason:
                failure = _with_hint(failure, reason)
                break
            self._note_loss(loss.devices)
            self._set_lost(lost, failure.what)
            self._returning = None
            self._display.warn(
                f"{failure.what.partition(';')[0]}; going on without {', '.join(sorted(lost))} "
                f"(restart {num_restarts} of at most {self._elastic.restarts})"
            )
            try:
                shelved = self._shelf.take(lost, lambda: self._display.notice("planning for this loss"))
            except RunError as error:
                failure = _with_hint(failure, f"{error.what}.")
                break
            self._display.notice(f"going on with {shelved.describe()}")
        last = runs[-1]
        return TrainResult(
            steps=tuple(self._steps[step] for step in sorted(self._steps)),
            timelines=tuple(samples),
            notes=tuple(dict.fromkeys(note for item in runs for note in item.notes)),
            was_stopped=last.was_stopped,
            failure=failure,
            stopping=last.stopping,
            changes=tuple(self._changes),
        )

    def _run_one(self, number: int, until: int | None, *, is_planned: bool) -> tuple[Run, list[Timeline]]:
        display, shelved = self._display, self._shelf.take(self._lost)
        label = f"on {show_count(len(shelved.devices), 'rank')}"
        if self._lost:
            label += f" without {', '.join(sorted(self._lost))}"
        predicted = self._predicted if not self._lost else None
        with run_dir("penstock-train-") as folder, display.progress(f"starting training {label}") as show:
            generation = Generation(
                number,
                shelved,
                self._cluster,
                self._options,
                folder,
                self._copies,
                self._elastic.copy_every,
                until,
            )
            if not is_planned:
                wanted = wanted_losses(self._hosts, self._lost, shelved.devices, self._elastic.minimum)
                self._shelf.want(wanted)
            progress = StepProgress(display, show, self._options.steps, predicted, label)

            def on_event(run: Run, event: Event) -> None:
                self._note(event)
                progress.update(run, event)

            run = generation.run(
                self._template,
                on_event=on_event,
                on_output=lambda line: display.notice(escape_text(line)),
                on_poll=lambda: None if is_planned else self._look_for_devices(generation),
                may_stop=self._may_stop,
            )
            return run, progress.timelines(run.samples)

    def _note(self, event: Event) -> None:
        """Keep steps, and where a change of the plan began."""
        if isinstance(event, Stepped):
            self._steps[event.step] = event
            if self._changes and not self._changes[-1].first_step_s:
                self._changes[-1] = self._changes[-1]._replace(first_step_s=time.time())
        if isinstance(event, Resumed) and self._pending is not None:
            repeated = [step for step in self._steps if step >= event.num_steps]
            for step in repeated:
                del self._steps[step]
            shelved = self._shelf.take(self._lost)
            change = self._pending._replace(
                step=event.num_steps, num_lost_steps=len(repeated), waited_s=shelved.waited_s
            )
            self._changes.append(change)
            self._pending = None
            again = f"; {show_count(len(repeated), 'finished step')} repeated" if repeated else ""
            self._display.notice(f"resumed after {show_count(event.num_steps, 'step')}{again}")

    def _look_for_devices(self, generation: Generation) -> None:
        """Check devices that may be back. One that works is used again when the plan with it is there."""
        if not self._lost:
            return
        now_s = time.monotonic()
        due = due_checks(self._absences, now_s, self._elastic.check_after_s)
        self._checks.begin([name for name in due if name not in self._working])
        for name, works in self._checks.ended().items():
            if works:
                self._working.add(name)
            elif name in self._absences:
                self._absences[name] = Absence(now_s, self._absences[name].num_losses + 1)
        for name in sorted(self._working & self._lost):
            if self._returning is None and self._shelf.is_ready(self._lost - {name}):
                self._returning = name
                generation.switch()

    def _note_loss(self, devices: frozenset[str]) -> None:
        """Note when devices were lost, and how often lately."""
        now_s = time.monotonic()
        for name in devices:
            returned_s = self._returned_s.get(name)
            is_again = returned_s is not None and now_s - returned_s < FORGIVEN * self._elastic.check_after_s
            self._num_losses[name] = self._num_losses.get(name, 0) + 1 if is_again else 1
            self._absences[name] = Absence(now_s, self._num_losses[name])
            self._working.discard(name)

    def _use_again(self) -> None:
        """Use the device that is back."""
        name = self._returning
        self._returning = None
        if name is None:
            return
        self._absences.pop(name, None)
        self._working.discard(name)
        self._returned_s[name] = time.monotonic()
        self._set_lost(self._lost - {name}, f"device {name} is back")
        self._display.notice(f"device {name} is back: going on with {self._shelf.take(self._lost).describe()}")

    def _set_lost(self, lost: frozenset[str], why: str) -> None:
        self._lost = lost
        self._pending = PlanChange(0, lost, why)

    def _numbers_on_hosts(self) -> dict[str, int]:
        """The number of each device on its host."""
        numbers: dict[str, int] = {}
        for host in set(self._hosts.values()):
            own = [name for name, item in self._hosts.items() if item == host]
            numbers |= {name: number for number, name in enumerate(own)}
        return numbers


def _with_hint(failure: PenstockError, hint: str) -> PenstockError:
    """The same error, with the reason why the run did not go on."""
    table = failure.table if isinstance(failure, RunFailed) else ""
    return RunFailed(failure.what, where=failure.where, hint=" ".join(filter(None, (failure.hint, hint))), table=table)
