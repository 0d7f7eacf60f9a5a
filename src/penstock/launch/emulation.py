"""Running an emulation: starts its processes, reads their events, and collects the results."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.dist import run_dir
from penstock.emulation import Emulation, find_limits, save_emulation
from penstock.errors import PenstockError
from penstock.launch.ranks.emulate_main import FILE
from penstock.launch.runs import (
    Event,
    LinksChanged,
    Noticed,
    RankAgent,
    Run,
    RunFailed,
    Sampled,
    find_failure,
    run_ranks,
)
from penstock.timeline import Timeline, build_timeline

SUPERVISOR_MODULE = "penstock.launch.ranks.emulate_main"


@dataclass(frozen=True)
class EmulationRun:
    """The results of an emulation, complete or not."""

    timelines: tuple[Timeline, ...]
    """Measured iterations in the cluster's time: those of `steps`."""
    steps: tuple[int, ...]
    """The steps to compare with the prediction: without the warm-up, and after all links have changed."""
    changed: Mapping[int, int]
    """The step in which links changed, by the index of the fault."""
    limits: tuple[str, ...]
    """Where this machine could not keep up."""
    was_stopped: bool
    failure: PenstockError | None
    log: str

    @property
    def is_warm_up(self) -> bool:
        """Whether only the first step, a warm-up, was measured."""
        return self.steps == (0,)


def emulate(
    emulation: Emulation, on_iteration: Callable[[int, Timeline], None] = lambda _step, _timeline: None
) -> EmulationRun:
    """Run an emulation.

    Args:
        emulation: The plan, the profile, the cluster, and what to emulate.
        on_iteration: Called with the step and the timeline of every iteration as soon as it has ended.
    """
    collected = _Collected()

    def on_event(run: Run, event: Event) -> None:
        match event:
            case Sampled():
                collected.timelines[event.step] = _timeline(emulation, event)
                on_iteration(event.step, collected.timelines[event.step])
            case Noticed():
                collected.noticed.append(event)
            case LinksChanged():
                collected.changed[event.fault] = run.ranks[0].step or 0

    with run_dir("penstock-emulate-") as folder:
        save_emulation(emulation, folder / FILE)
        launch = RankAgent([sys.executable, "-m", SUPERVISOR_MODULE, str(folder)])
        run = run_ranks(
            launch,
            folder,
            range(len(emulation.devices)),
            on_event=on_event,
            on_output=lambda _line: None,
            settings={"TORCH_CPP_LOG_LEVEL": "ERROR"},
        )
    steps = select_steps(list(collected.timelines), max(collected.changed.values(), default=0))
    timelines = tuple(collected.timelines[step] for step in steps)
    noticed = [item for item in collected.noticed if item.step in steps]
    limits = find_limits(emulation, timelines, [item.busy for item in noticed], [item.lateness for item in noticed])
    if steps == (0,):
        limits = []  # a warm-up is slow on any machine
    failure = _find_failure(emulation, run)
    return EmulationRun(timelines, steps, collected.changed, tuple(limits), run.was_stopped, failure, run.log)


@dataclass
class _Collected:
    """The events up to now."""

    noticed: list[Noticed] = field(default_factory=list)
    timelines: dict[int, Timeline] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)


def select_steps(steps: Sequence[int], changed: int) -> tuple[int, ...]:
    """The steps to compare with the prediction: all after the first, and after the one in which links changed.

    >>> select_steps([0, 1, 2, 3], 0), select_steps([0, 1, 2, 3], 1), select_steps([0, 1], 1), select_steps([0], 0)
    ((1, 2, 3), (2, 3), (1,), (0,))
    """
    return tuple(
        [step for step in steps if step > changed] or [step for step in steps if step == changed] or list(steps)
    )


def _find_failure(emulation: Emulation, run: Run) -> PenstockError | None:
    """The error of the run. If ranks were killed by --kill, the error states this."""
    failure = find_failure(run)
    killed = [
        item
        for item in emulation.faults.killed
        if run.ranks[item.rank].step == item.step and not run.ranks[item.rank].is_done
    ]
    if not killed or not isinstance(failure, RunFailed):
        return failure
    ranks = " and ".join(f"rank {item.rank} ({emulation.devices[item.rank]})" for item in killed)
    options = " ".join(f"--kill {item.rank}@{item.step}" for item in killed)
    verb = "was" if len(killed) == 1 else "were"
    return RunFailed(
        f"{ranks} {verb} killed at the start of step {killed[0].step}, as requested by {options}; "
        "all ranks were stopped",
        hint="" if emulation.script is None else "The status table may be up to half a second older.",
        table=failure.table,
    )


def _timeline(emulation: Emulation, sample: Sampled) -> Timeline:
    start_s, end_s = np.array(sample.start_s), np.array(sample.end_s)
    proof = emulation.evaluation.proof
    timeline = build_timeline(proof, start_s / emulation.slow_down, end_s / emulation.slow_down, "measured")
    return replace(timeline, is_warm_up=sample.step == 0)
