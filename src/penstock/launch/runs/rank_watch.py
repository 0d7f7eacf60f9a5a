"""Follows the ranks of a run while they run: events, output, and whether one has failed."""

import time
from collections.abc import Callable
from pathlib import Path

from penstock.dist import Launcher, Process, read_status_board, store_file, write_store_file
from penstock.launch.runs.events import (
    Began,
    Done,
    Event,
    EventReader,
    Exited,
    Failed,
    LineReader,
    MemoryMeasured,
    Noted,
    Paused,
    Sampled,
    Started,
    Stepped,
    Stopping,
)
from penstock.launch.runs.first_cause import is_certain
from penstock.launch.runs.host_link import HostLink
from penstock.launch.runs.rank_state import RankState, Run, is_process_stopped

KILL_S = 1.0
"""Once the first cause is known, the other ranks get this long to end by themselves."""


SWITCH = "SWITCH"
"""In the file `stop`: the ranks finish their step, complete a copy of their state, and end for others to go on."""


def stop_file(folder: Path) -> Path:
    """The file with the name of the signal that asks the ranks to finish their step, save and end; or `SWITCH`."""
    return folder / "stop"


def stdout_path(folder: Path) -> Path:
    """The file of the standard output of rank 0 or of an agent."""
    return folder / "stdout"


class RankWatch:
    """Follows the ranks of a run: their events and output, whether one has failed, and what each did then."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        on_event: Callable[[Run, Event], None],
        on_output: Callable[[str], None],
        stopped_s: float,
        link: HostLink | None,
        *,
        is_agent: bool,
        kill_s: float = KILL_S,
    ) -> None:
        self._run = run
        self._is_agent, self._kill_s = is_agent, kill_s
        self._folder = folder
        self._on_event, self._on_output = on_event, on_output
        self._stopped_s = stopped_s
        self._readers = [EventReader(folder, state.rank) for state in run.ranks]
        self._printed = LineReader(stdout_path(folder))
        self._stopped_since_s: dict[int, float] = {}
        self._has_noted = False
        self._link = link

    def read(self) -> None:
        """Read new events and output."""
        for state, reader in zip(self._run.ranks, self._readers, strict=True):
            for event in reader.new_events():
                update_run(self._run, state, event)
                self._on_event(self._run, event)
        for line in self._printed.new_lines():
            self._on_output(line.decode(errors="replace"))

    def look(self, launcher: Launcher) -> None:
        """Read what is new, and end all ranks if one has failed or is stopped for too long."""
        self.read()
        if self._is_agent:
            return
        if self._link is not None:
            self._look_at_hosts(launcher, self._link)
        if not self._has_noted:
            self._note_stopped(launcher)
            has_failed = any(state.failed is not None or state.is_stopped for state in self._run.ranks)
            if not launcher.is_ending and not has_failed:
                return
            self._has_noted = True
            self._note_first_failure(launcher)
            launcher.shut_down()
            if self._link is not None and self._link.end_why is None:
                self._link.end()
        if is_certain(self._run.ranks):
            launcher.shut_down(self._kill_s)
            if self._link is not None and not self._link.is_end_certain:
                self._link.end(is_certain=True)

    def _look_at_hosts(self, launcher: Launcher, link: HostLink) -> None:
        """Pass on where the store is, and end the ranks if another host ends the run."""
        link.look()
        if link.stop_signal and self._run.ranks[0].rank == 0:
            stop_file(self._folder).write_text(link.stop_signal)
        path = store_file(self._folder)
        if link.store_port is None and path.exists() and self._run.ranks[0].rank == 0:
            link.share_store(int(path.read_text().split()[1]))
        elif link.store_port is not None and not path.exists():
            write_store_file(self._folder, link.first_address, link.store_port)
        if link.end_why is not None and not self._has_noted:
            self._has_noted = True
            self._note_first_failure(launcher)
            launcher.shut_down()
        if link.is_end_certain:
            launcher.shut_down(KILL_S)

    def ask_to_stop(self, name: str) -> None:
        """Ask the ranks to finish their step, save and end.

        Args:
            name: The signal that asks for it.
        """
        if self._link is None or self._run.ranks[0].rank == 0:
            stop_file(self._folder).write_text(name)
        else:
            self._link.ask_to_stop(name)

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


def update_run(run: Run, state: RankState, event: Event) -> None:
    """Keep what an event of a rank says."""
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
        case MemoryMeasured():
            state.memory = event
        case Stepped():
            run.steps.append(event)
        case Stopping():
            run.stopping = event
        case Paused():
            run.paused = event
        case Sampled():
            run.samples.append(event)
        case Noted() if event.text not in run.notes:
            run.notes.append(event.text)
