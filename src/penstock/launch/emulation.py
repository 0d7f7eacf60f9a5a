"""Running an emulation from outside: starts its processes, reads along, and collects what came of it."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.emulation import Emulation, find_limits, save_emulation
from penstock.errors import PenstockError
from penstock.launch.events import Event, LinksChanged, Noticed, Sampled
from penstock.launch.failures import RunFailed, failure_of
from penstock.launch.process import Run, run_ranks
from penstock.launch.ranks.emulate_main import FILE
from penstock.launch.run_dir import run_folder
from penstock.timeline import Timeline, build_timeline

WORLD_MODULE = "penstock.launch.ranks.emulate_main"


@dataclass(frozen=True)
class EmulationRun:
    """What came of an emulation, as far as it came."""

    timelines: tuple[Timeline, ...]
    """Measured iterations, in the cluster's time: those of `steps`."""
    steps: tuple[int, ...]
    """Those that tell most: without the first, which warms up, and after the links changed that were to change."""
    changed: Mapping[int, int]
    """The step in which links changed, by the number of the fault."""
    limits: tuple[str, ...]
    """Where this machine could not keep up."""
    was_stopped: bool
    failure: PenstockError | None
    log: str

    @property
    def is_warm_up(self) -> bool:
        """Whether only the first step was measured, which says little."""
        return self.steps == (0,)


def emulate(emulation: Emulation, watch: Callable[[int, Timeline], None] = lambda _step, _found: None) -> EmulationRun:
    """Emulate. `watch` sees every iteration as soon as it is done."""
    seen = _Seen()

    def see(run: Run, event: Event) -> None:
        match event:
            case Sampled():
                seen.timelines[event.step] = _timeline(emulation, event)
                watch(event.step, seen.timelines[event.step])
            case Noticed():
                seen.noticed.append(event)
            case LinksChanged():
                seen.changed[event.fault] = run.ranks[0].step or 0

    with run_folder("penstock-emulate-") as folder:
        save_emulation(emulation, folder / FILE)
        command = [sys.executable, "-m", WORLD_MODULE, str(folder), str(os.getpid())]
        ranks = range(len(emulation.devices))
        run = run_ranks(command, folder, ranks, watch=see, said=lambda _line: None, TORCH_CPP_LOG_LEVEL="ERROR")
    steps = chosen_steps(list(seen.timelines), max(seen.changed.values(), default=0))
    chosen = tuple(seen.timelines[step] for step in steps)
    told = [item for item in seen.noticed if item.step in steps]
    limits = find_limits(emulation, chosen, [item.busy for item in told], [item.lateness for item in told])
    if steps == (0,):
        limits = []  # what warms up is slow on any machine
    return EmulationRun(chosen, steps, seen.changed, tuple(limits), run.was_stopped, _failure(emulation, run), run.log)


@dataclass
class _Seen:
    """What has been told until now."""

    noticed: list[Noticed] = field(default_factory=list)
    timelines: dict[int, Timeline] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)


def chosen_steps(steps: Sequence[int], changed: int) -> tuple[int, ...]:
    """The steps to compare with what was predicted: all after the first, and after the one in which links changed.

    >>> chosen_steps([0, 1, 2, 3], 0), chosen_steps([0, 1, 2, 3], 1), chosen_steps([0, 1], 1), chosen_steps([0], 0)
    ((1, 2, 3), (2, 3), (1,), (0,))
    """
    return tuple(
        [step for step in steps if step > changed] or [step for step in steps if step == changed] or list(steps)
    )


def _failure(emulation: Emulation, run: Run) -> PenstockError | None:
    """What went wrong. Of ranks that died because that was asked for, nobody must wonder why."""
    found = failure_of(run)
    killed = [
        item
        for item in emulation.faults.killed
        if run.ranks[item.rank].step == item.step and not run.ranks[item.rank].is_done
    ]
    if not killed or not isinstance(found, RunFailed):
        return found
    who = " and ".join(f"rank {item.rank} ({emulation.devices[item.rank]})" for item in killed)
    asked = " ".join(f"--kill {item.rank}@{item.step}" for item in killed)
    was = "was" if len(killed) == 1 else "were"
    told = RunFailed(
        f"{who} {was} killed when step {killed[0].step} began, as {asked} asked; so the others ended too",
        hint="" if emulation.script is None else "The table is what ranks wrote down last, up to half a second before.",
    )
    told.table = found.table
    return told


def _timeline(emulation: Emulation, sample: Sampled) -> Timeline:
    start_s, end_s = np.array(sample.start_s), np.array(sample.end_s)
    proof = emulation.evaluation.proof
    found = build_timeline(proof, start_s / emulation.slow_down, end_s / emulation.slow_down, "measured")
    return replace(found, is_warm_up=sample.step == 0)
