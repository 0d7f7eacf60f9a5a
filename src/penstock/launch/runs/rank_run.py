"""A run of several ranks: starts them with the launcher, reads their events and output, and keeps the results."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from penstock.dist import (
    SHUTDOWN_S,
    Launcher,
    Process,
    RankModule,
    read_status_board,
    sigterm_as_ctrl_c,
    stderr_path,
)
from penstock.launch.runs.events import (
    Began,
    Done,
    Event,
    EventReader,
    Exited,
    Failed,
    LineReader,
    Noted,
    Sampled,
    Started,
    Stepped,
)
from penstock.launch.runs.first_cause import is_certain
from penstock.launch.runs.rank_state import RankState, Run, count_memory_kills, is_process_stopped
from penstock.launch.runs.torchrun import torchrun_exits

AGENT = "agent"


STOPPED_S = 120.0
"""Default for how long a signal may have stopped a rank until the run ends."""
KILL_S = 1.0
"""Once the first cause is known, the other ranks get this long to end by themselves."""


@dataclass(frozen=True)
class LocalRanks:
    """Ranks that all run on this host: one process of `module` for each."""

    module: RankModule
    num_ranks: int

    def start(self, launcher: Launcher, folder: Path, **settings: str) -> None:
        """Start them."""
        launcher.start_ranks(
            self.module,
            self.num_ranks,
            folder,
            stdout=stdout_path(folder),
            stderr=partial(stderr_path, folder),
            **settings,
        )


@dataclass(frozen=True)
class SingleProcess:
    """One process of `command` that trains the whole model, without the environment of a rank."""

    command: Sequence[str]

    def start(self, launcher: Launcher, folder: Path, **settings: str) -> None:
        """Start it."""
        launcher.start(
            self.command,
            settings | os.environ,
            stdout=stdout_path(folder),
            stderr=stderr_path(folder, 0),
        )


@dataclass(frozen=True)
class RankAgent:
    """Ranks that a process of `command` starts, such as torchrun or an emulation's supervisor."""

    command: Sequence[str]

    def start(self, launcher: Launcher, folder: Path, **settings: str) -> None:
        """Start the agent."""
        launcher.start(
            self.command,
            settings | {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": f"{SHUTDOWN_S:.0f}"} | os.environ,
            stdout=stdout_path(folder),
            stderr=stderr_path(folder, AGENT),
            is_agent=True,
        )


Launch: TypeAlias = LocalRanks | SingleProcess | RankAgent


def stdout_path(folder: Path) -> Path:
    """The file of the standard output of rank 0 or of an agent."""
    return folder / "stdout"


def run_ranks(
    launch: Launch,
    folder: Path,
    ranks: Sequence[int],
    *,
    on_event: Callable[[Run, Event], None],
    on_output: Callable[[str], None],
    settings: Mapping[str, str] | None = None,
    devices: Sequence[str] = (),
    stopped_s: float = STOPPED_S,
) -> Run:
    """Run ranks that write their events to `folder`, until all have ended.

    Ctrl-C ends all ranks at once; the events up to then are kept.

    Args:
        launch: How the ranks are started.
        folder: A directory that only this user can open.
        ranks: The ranks of this host.
        on_event: Called with every event.
        on_output: Called with every line that rank 0 prints.
        settings: Environment variables of the ranks, where the environment of this process does not set them.
        devices: Names of the ranks' devices in the plan.
        stopped_s: How long a signal may have stopped a rank until the run ends.
    """
    names = [*devices, *[""] * (len(ranks) - len(devices))]
    run = Run([RankState(rank, device=name) for rank, name in zip(ranks, names, strict=True)])
    watch = _Watch(run, launch, folder, on_event, on_output, stopped_s)
    kills_before = count_memory_kills()
    with Launcher(watch.on_exit, watch.has_failed) as launcher:
        try:
            with sigterm_as_ctrl_c():
                launch.start(launcher, folder, **{"OMP_NUM_THREADS": "1", **(settings or {})})
                launcher.wait(lambda: watch.look(launcher))
        except KeyboardInterrupt:
            run.was_stopped = True
        if isinstance(launch, RankAgent):
            _kill_ranks(run, launcher)
        launcher.stop()
        watch.read()
        run.exit_code = launcher.exit_code
        _collect(run, launch, launcher, folder)
    kills = count_memory_kills()
    run.memory_kills = None if kills is None or kills_before is None else kills - kills_before
    return run


class _Watch:
    """Follows the ranks of a run: their events and output, whether one has failed, and what each did then."""

    def __init__(
        self,
        run: Run,
        launch: Launch,
        folder: Path,
        on_event: Callable[[Run, Event], None],
        on_output: Callable[[str], None],
        stopped_s: float,
    ) -> None:
        self._run = run
        self._is_agent = isinstance(launch, RankAgent)
        self._folder = folder
        self._on_event, self._on_output = on_event, on_output
        self._stopped_s = stopped_s
        self._readers = [EventReader(folder, state.rank) for state in run.ranks]
        self._printed = LineReader(stdout_path(folder))
        self._stopped_since_s: dict[int, float] = {}
        self._has_noted = False

    def read(self) -> None:
        """Read new events and output."""
        for state, reader in zip(self._run.ranks, self._readers, strict=True):
            for event in reader.new_events():
                _update(self._run, state, event)
                self._on_event(self._run, event)
        for line in self._printed.new_lines():
            self._on_output(line.decode(errors="replace"))

    def look(self, launcher: Launcher) -> None:
        """Read what is new, and end all ranks if one has failed or is stopped for too long."""
        self.read()
        if self._is_agent:
            return
        if not self._has_noted:
            self._note_stopped(launcher)
            has_failed = any(state.failed is not None or state.is_stopped for state in self._run.ranks)
            if not launcher.is_ending and not has_failed:
                return
            self._has_noted = True
            self._note_first_failure(launcher)
            launcher.shut_down()
        if is_certain(self._run.ranks):
            launcher.shut_down(KILL_S)

    def has_failed(self, process: Process, code: int) -> bool:
        """Whether a process that has ended has failed: with an exit code, or without having finished its work."""
        if self._is_agent or process.number >= len(self._run.ranks):
            return code != 0
        self.read()
        return code != 0 or not self._run.ranks[process.number].is_done

    def on_exit(self, process: Process) -> None:
        """Note the end of a rank."""
        if self._is_agent or process.number >= len(self._run.ranks):
            return
        assert process.code is not None
        state = self._run.ranks[process.number]
        state.exited = Exited(process.code, process.was_stopped, time.monotonic())
        if state.status is None:
            state.status = read_status_board(self._folder, state.rank)

    def _note_stopped(self, launcher: Launcher) -> None:
        now_s = time.monotonic()
        for process, state in zip(launcher.processes, self._run.ranks, strict=False):
            if process.code is None and is_process_stopped(process.handle.pid):
                since_s = self._stopped_since_s.setdefault(state.rank, now_s)
                state.is_stopped = now_s - since_s > self._stopped_s
            else:
                self._stopped_since_s.pop(state.rank, None)

    def _note_first_failure(self, launcher: Launcher) -> None:
        """Note what each rank does at this moment, before they are told to end."""
        for process, state in zip(launcher.processes, self._run.ranks, strict=False):
            state.is_stopped = process.code is None and is_process_stopped(process.handle.pid)
            state.status = read_status_board(self._folder, state.rank)


def _update(run: Run, state: RankState, event: Event) -> None:
    match event:
        case Started():
            state.local_rank, state.pid = event.local_rank, event.pid
        case Began():
            state.step = event.step
        case Failed():
            state.failed = event
        case Done():
            state.is_done = True
        case Exited():
            state.exited = event
            if event.code and run.first_exited is None:
                run.first_exited = state.rank
        case Stepped():
            run.steps.append(event)
        case Sampled():
            run.samples.append(event)
        case Noted() if event.text not in run.notes:
            run.notes.append(event.text)


def _kill_ranks(run: Run, launcher: Launcher) -> None:
    """Kill the ranks of an agent that is still running: each has a session of its own, and would outlive the agent."""
    if not launcher.poll():
        return
    for state in run.ranks:
        if state.pid and not state.is_done:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(state.pid, signal.SIGKILL)


def _collect(run: Run, launch: Launch, launcher: Launcher, folder: Path) -> None:
    """Take over exit statuses and output."""
    if isinstance(launch, RankAgent):
        run.log = stderr_path(folder, AGENT).read_text(errors="replace")
        for rank, exited in torchrun_exits(run.log).items():
            for state in run.ranks:
                if state.rank == rank:
                    state.exited = exited
        return
    for state, process in zip(run.ranks, launcher.processes, strict=False):
        state.output = stderr_path(folder, state.rank).read_text(errors="replace")
        if process is launcher.first_failed:
            run.first_exited = state.rank
    run.log = "".join(f"rank {state.rank}:\n{state.output}" for state in run.ranks if state.output.strip())
