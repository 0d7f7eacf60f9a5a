"""A run of several ranks: starts them with the launcher, reads their events and output, and keeps the results."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from penstock.dist import SHUTDOWN_S, Launcher, RankModule, sigterm_as_ctrl_c, stderr_path
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
from penstock.launch.runs.torchrun import torchrun_exits

AGENT = "agent"


@dataclass
class RankState:
    """The state of a rank, as far as its events and its exit status tell."""

    rank: int
    local_rank: int = -1
    pid: int = 0
    step: int | None = None
    failed: Failed | None = None
    is_done: bool = False
    exited: Exited | None = None
    output: str = ""
    """Its standard error, where it has a file of its own."""


@dataclass
class Run:
    """The results of a run, complete or not."""

    ranks: list[RankState]
    steps: list[Stepped] = field(default_factory=list)
    samples: list[Sampled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exit_code: int = 0
    was_stopped: bool = False
    """By Ctrl-C, SIGTERM or SIGHUP."""
    log: str = ""
    """The standard error of the ranks and of the process that started them."""
    first_exited: int | None = None
    """The rank that was first to end with another exit code than 0, if known."""


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
    """
    run = Run([RankState(rank) for rank in ranks])
    readers = [EventReader(folder, rank) for rank in ranks]
    printed = LineReader(stdout_path(folder))

    def read() -> None:
        for state, reader in zip(run.ranks, readers, strict=True):
            for event in reader.new_events():
                _update(run, state, event)
                on_event(run, event)
        for line in printed.new_lines():
            on_output(line.decode(errors="replace"))

    with Launcher() as launcher:
        try:
            with sigterm_as_ctrl_c():
                launch.start(launcher, folder, **{"OMP_NUM_THREADS": "1", **(settings or {})})
                launcher.wait(read)
        except KeyboardInterrupt:
            run.was_stopped = True
        if isinstance(launch, RankAgent):
            _kill_ranks(run, launcher)
        launcher.stop()
        read()
        run.exit_code = launcher.exit_code
        _collect(run, launch, launcher, folder)
    return run


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
        state.exited = None if process.code is None else Exited(process.code, process.was_stopped)
        state.output = stderr_path(folder, state.rank).read_text(errors="replace")
        if process is launcher.first_failed:
            run.first_exited = state.rank
    run.log = "".join(f"rank {state.rank}:\n{state.output}" for state in run.ranks if state.output.strip())
