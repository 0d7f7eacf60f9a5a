"""Running an emulation from outside: starts its processes, reads along, and collects what came of it."""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.cli.emulate_world import FILE
from penstock.cli.events import Event, Noticed, Sampled
from penstock.cli.failures import failure_of
from penstock.cli.launching import Run, run_ranks
from penstock.emulation.limits import find_limits
from penstock.emulation.spec import Emulation, save_emulation
from penstock.errors import PenstockError
from penstock.timeline.build import build_timeline
from penstock.timeline.types import Timeline

WORLD_MODULE = "penstock.cli.emulate_world"


@dataclass(frozen=True)
class EmulationRun:
    """What came of an emulation, as far as it came."""

    timelines: tuple[Timeline, ...]
    """Measured iterations, in the cluster's time; the first, which warms up, only if there is no other."""
    limits: tuple[str, ...]
    """Where this machine could not keep up."""
    was_stopped: bool
    failure: PenstockError | None
    log: str


def emulate(emulation: Emulation, watch: Callable[[int, Timeline], None] = lambda _step, _found: None) -> EmulationRun:
    """Emulate. `watch` sees every iteration as soon as it is done."""
    noticed: list[Noticed] = []
    timelines: dict[int, Timeline] = {}

    def see(_run: Run, event: Event) -> None:
        if isinstance(event, Sampled):
            timelines[event.step] = _timeline(emulation, event)
            watch(event.step, timelines[event.step])
        elif isinstance(event, Noticed):
            noticed.append(event)

    with tempfile.TemporaryDirectory(prefix="penstock-emulate-") as name:
        folder = Path(name)
        save_emulation(emulation, folder / FILE)
        command = [sys.executable, "-m", WORLD_MODULE, name, str(os.getpid())]
        ranks = range(len(emulation.devices))
        run = run_ranks(command, folder, ranks, watch=see, said=lambda _line: None, TORCH_CPP_LOG_LEVEL="ERROR")
    steps = [step for step in timelines if step] or list(timelines)
    chosen = tuple(timelines[step] for step in steps)
    told = [item for item in noticed if item.step in steps]
    limits = find_limits(emulation, chosen, [item.busy for item in told], [item.lateness for item in told])
    return EmulationRun(chosen, tuple(limits), run.was_stopped, failure_of(run), run.log)


def _timeline(emulation: Emulation, sample: Sampled) -> Timeline:
    start_s, end_s = np.array(sample.start_s), np.array(sample.end_s)
    proof = emulation.evaluation.proof
    return build_timeline(proof, start_s / emulation.slow_down, end_s / emulation.slow_down, "measured")
