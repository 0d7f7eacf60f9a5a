"""A run of several ranks: starts them with the launcher, reads their events and output, and keeps the results."""

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from penstock.dist import (
    SHUTDOWN_S,
    HostPlace,
    Launcher,
    RankModule,
    RankTemplate,
    sigterm_as_ctrl_c,
    stderr_path,
    stop_signals,
)
from penstock.launch.runs.events import Event
from penstock.launch.runs.host_link import HostLink
from penstock.launch.runs.rank_state import RankState, Run, count_memory_kills
from penstock.launch.runs.rank_watch import KILL_S, RankWatch, stdout_path
from penstock.launch.runs.torchrun import torchrun_exits

AGENT = "agent"


STOPPED_S = 120.0
"""Default for how long a signal may have stopped a rank until the run ends."""


@dataclass(frozen=True)
class LocalRanks:
    """Ranks that all run on this host: one process of `module` for each."""

    module: RankModule
    num_ranks: int
    place: HostPlace | None = None
    """Their place among the ranks of several hosts."""
    template: RankTemplate | None = None
    """The template that forks them, if there is one that stays."""
    local_ranks: Sequence[int] | None = None
    """The number of each rank's device on this host. None: that of the rank."""

    def start(self, launcher: Launcher, folder: Path, **settings: str) -> None:
        """Start them."""
        launcher.start_ranks(
            self.module,
            self.num_ranks,
            folder,
            stdout=stdout_path(folder),
            # Its files are numbered by the ranks of this host.
            stderr=partial(stderr_path, folder),
            place=self.place,
            template=self.template,
            local_ranks=self.local_ranks,
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
    link: HostLink | None = None,
    may_stop: bool = False,
    on_poll: Callable[[], None] = lambda: None,
    kill_s: float = KILL_S,
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
        link: The link to the other hosts of the run, which have joined.
        may_stop: Whether SIGTERM and SIGUSR1 ask the ranks to finish their step, save and end. A second SIGTERM ends
            them at once.
        on_poll: Called many times a second while ranks run.
        kill_s: Once the first cause of a failure is known, the other ranks get this long to end by themselves.
    """
    names = [*devices, *[""] * (len(ranks) - len(devices))]
    run = Run([RankState(rank, device=name) for rank, name in zip(ranks, names, strict=True)])
    watch = RankWatch(
        run, folder, on_event, on_output, stopped_s, link, is_agent=isinstance(launch, RankAgent), kill_s=kill_s
    )

    def look() -> None:
        watch.look(launcher)
        on_poll()

    kills_before = count_memory_kills()
    with Launcher(watch.on_exit, watch.has_failed) as launcher:
        try:
            with sigterm_as_ctrl_c(), stop_signals(watch.ask_to_stop) if may_stop else nullcontext():
                launch.start(launcher, folder, **{"OMP_NUM_THREADS": "1", **(settings or {})})
                launcher.wait(look)
        except KeyboardInterrupt:
            run.was_stopped = True
            if link is not None:
                link.end(f"the command on host {socket.gethostname()} was interrupted", is_certain=True)
        if isinstance(launch, RankAgent):
            _kill_ranks(run, launcher)
        launcher.stop()
        watch.read()
        run.exit_code = launcher.exit_code
        _collect(run, launch, launcher, folder)
    kills = count_memory_kills()
    run.memory_kills = None if kills is None or kills_before is None else kills - kills_before
    if link is not None:
        _exchange(run, link)
    return run


def _exchange(run: Run, link: HostLink) -> None:
    """Take over what became of the ranks of other hosts."""
    everywhere = link.exchange(run.ranks)
    # Without host 0 nobody knows all ranks.
    run.ranks = list(everywhere or sorted([*run.ranks, *link.lost_ranks()], key=lambda state: state.rank))
    run.first_exited = None
    if not run.was_stopped:
        run.ended_why = link.end_why or ""


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
        state.output = stderr_path(folder, process.number).read_text(errors="replace")
        if process is launcher.first_failed:
            run.first_exited = state.rank
    run.log = "".join(f"rank {state.rank}:\n{state.output}" for state in run.ranks if state.output.strip())
