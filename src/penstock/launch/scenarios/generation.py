"""One generation of ranks: from their start until a device is lost, one comes back, or all steps are done."""

import sys
import time
from dataclasses import replace

import numpy as np
from msgspec.structs import replace as replaced

from penstock.adaptation import Adapter, Outcome, Subject, find_moves
from penstock.dist import read_status_board, run_dir
from penstock.emulation import Emulation, SwitchCommand, join_moves, save_emulation, stop_path, write_switch
from penstock.errors import PenstockError
from penstock.launch.emulation import SUPERVISOR_MODULE
from penstock.launch.ranks.emulate_main import FILE
from penstock.launch.runs import (
    Began,
    Event,
    RankAgent,
    Run,
    Sampled,
    Switched,
    find_failure,
    find_first_cause,
    run_ranks,
)
from penstock.launch.scenarios.play import PlanChange, Play, PlayedStep
from penstock.simulate import Evaluation
from penstock.timeline import Timeline, build_timeline
from penstock.units import show_bytes, show_seconds


class Generation:
    """The ranks from one start to the next.

    Args:
        play: The run.
        emulation: The devices that are left, the plan for them, and the first step.
    """

    def __init__(self, play: Play, emulation: Emulation) -> None:
        self._play = play
        self._emulation = emulation
        self._running = emulation
        self._number = 0
        self._pending: tuple[Outcome, Emulation] | None = None
        self._asked_to_end = False
        self._last_step = emulation.first_step - 1
        self.why = ""
        evaluation = emulation.evaluation
        subject = Subject(
            emulation.profile,
            emulation.cluster,
            play.replan,
            max(emulation.num_steps, play.scenario.run_steps),
            play.restart_s,
        )
        self._adapter = None if play.options.mode == "off" else Adapter(subject, evaluation)

    def run(self) -> int:
        """Run until the ranks end. Returns the step from which to go on."""
        play, emulation = self._play, self._emulation
        with run_dir("penstock-emulate-") as folder:
            self._folder = folder
            save_emulation(emulation, folder / FILE)
            run = run_ranks(
                RankAgent([sys.executable, "-m", SUPERVISOR_MODULE, str(folder)]),
                folder,
                range(len(emulation.devices)),
                on_event=self._on_event,
                on_output=lambda _line: None,
                settings={"TORCH_CPP_LOG_LEVEL": "ERROR"},
            )
            for state in run.ranks:
                state.status = read_status_board(folder, state.rank)
        if self._adapter is not None:
            self._adapter.close()
            play.speeds = self._adapter.speeds
        play.result.log += run.log
        if run.was_stopped:
            play.result.was_stopped = True
        failure = find_failure(run)
        if failure is not None and not run.was_stopped:
            return self._lost(run, failure)
        if self._asked_to_end and self._last_step + 1 < emulation.num_steps:
            names = play.returned()
            play.bring_back(names)
            self.why = f"{' and '.join(names)} came back"
        return self._last_step + 1

    def _lost(self, run: Run, failure: PenstockError) -> int:
        play = self._play
        cause = find_first_cause(run.ranks, run.first_exited)
        expected = {item.device for item in play.scenario.of("kill", "hang") if item.at_s <= play.now_s}
        device = None if cause is None else self._emulation.devices[cause.rank]
        if device is None or device not in expected:
            play.result.failure = failure
            return self._last_step + 1
        step = self._last_step + 1
        self.why = f"{device} was lost in step {step}"
        saved = play.lose(device, step)
        if not play.alive:
            play.result.failure = failure
        return saved

    def _on_event(self, _run: Run, event: Event) -> None:
        play = self._play
        match event:
            case Began() if not play.began_s:
                play.began_s = time.monotonic()
            case Switched():
                self._switched(event)
            case Sampled():
                self._sampled(event)
        if not self._asked_to_end and play.returned():
            self._asked_to_end = True
            stop_path(self._folder).write_text("")

    def _sampled(self, event: Sampled) -> None:
        play = self._play
        timeline = _timeline(self._running, event)
        self._last_step = event.step
        plan_number = len(play.result.changes)
        play.result.steps.append(PlayedStep(event.step, play.now_s, timeline.iteration_s, plan_number))
        if self._adapter is None:
            return
        self._adapter.observe(event.step, timeline)
        outcome = self._adapter.take_outcome()
        if outcome is None:
            return
        play.result.decisions.append(outcome)
        advice = play.options.mode == "advise"
        play.log(f"step {event.step}: {outcome.decision.sentence}{' (advice only)' if advice else ''}")
        if outcome.decision.switch and outcome.candidate is not None and not advice and self._pending is None:
            self._ask_to_switch(outcome, outcome.candidate)

    def _ask_to_switch(self, outcome: Outcome, candidate: Evaluation) -> None:
        emulation, plan, believed = self._running, candidate.costs.plan, candidate.costs.cluster
        moves = find_moves(emulation.plan, plan, emulation.profile, emulation.cluster)
        joined = join_moves([(move.source, move.target, move.num_bytes) for move in moves])
        self._pending = outcome, replaced(emulation, plan=plan, believed=believed)
        if self._adapter is not None:
            self._adapter.hold()
        write_switch(self._folder, self._number + 1, SwitchCommand(plan=plan, believed=believed, moves=joined))

    def _switched(self, event: Switched) -> None:
        assert self._pending is not None, "a change was asked for"
        play = self._play
        (outcome, self._running), self._pending = self._pending, None
        self._number = event.number
        assert self._adapter is not None
        assert outcome.candidate is not None, "the change has a plan"
        self._adapter.start_plan(outcome.candidate, outcome.decision.new_s)
        play.plans.append(outcome.candidate.costs.plan)
        seconds = event.seconds / self._emulation.slow_down
        play.result.changes.append(PlanChange(event.step, "other speeds", seconds, outcome.decision.new_s))
        play.log(
            f"step {event.step}: changed to another plan in {show_seconds(seconds)}; {show_bytes(event.num_bytes)} of "
            "parameters and optimizer state moved"
        )


def _timeline(emulation: Emulation, sample: Sampled) -> Timeline:
    scale = emulation.slow_down
    start_s, end_s = np.array(sample.start_s) / scale, np.array(sample.end_s) / scale
    timeline = build_timeline(emulation.evaluation.proof, start_s, end_s, "measured")
    return replace(timeline, is_warm_up=sample.step == emulation.first_step)
