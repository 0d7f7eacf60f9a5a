"""The launcher: starts the processes of a run on this host, supervises them, and ends them together.

Everything that starts processes uses this module, commands as well as measurements: train, check numerics, probe,
emulate and profile. `tests/test_layers.py` checks that no other module does.
"""

import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

from penstock.dist.parent import STARTED_BY, die_with_parent
from penstock.dist.rendezvous import rank_environments
from penstock.dist.shutdown import STOPPED_CODES, exit_now

POLL_S = 0.05
STOP_POLL_S = 0.005
SHUTDOWN_S = 8.0
"""After one process has failed, the others get SIGTERM, and SIGKILL this much later."""
GRACE_S = 3.0
"""How long an agent such as torchrun may take to end its own processes."""


def _nothing(*_arguments: Any) -> None:
    pass


class ProcessHandle(Protocol):
    """What the launcher needs of a process that it has started. `subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """The process id. It leads a process group of the same id."""

    def poll(self) -> int | None:
        """Return the exit code, -n for signal n, or None if the process is running."""


@dataclass
class Process:
    """A process of a run."""

    handle: ProcessHandle
    number: int
    """Processes are numbered in the order in which they were started."""
    is_agent: bool = False
    """Whether it starts ranks itself, as torchrun does."""
    code: int | None = None
    """The exit code, -n for signal n; None while it is running."""
    was_stopped: bool = False
    """Whether the launcher ended it."""


@dataclass
class Launcher:
    """The processes of a run. Use it as a context manager: at the end no process is left."""

    on_exit: Callable[[Process], None] = _nothing
    """Called once for every process that has ended."""
    poll_s: float = POLL_S
    processes: list[Process] = field(default_factory=list)
    first_failed: Process | None = None
    """The process that was first to end with another exit code than 0."""
    _kill_at_s: float = math.inf
    _is_killed: bool = False

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdout: int | Path | None = None,
        stderr: int | Path | None = None,
        is_agent: bool = False,
    ) -> Process:
        """Start a process in a session of its own: Ctrl-C reaches this process only, which ends the others.

        Args:
            command: The program and its arguments.
            environment: Its environment.
            stdout: Where its standard output goes: a file, a constant of `subprocess`, or None for that of this
                process.
            stderr: Where its standard error goes.
            is_agent: Whether it starts ranks itself.
        """
        with ExitStack() as files:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=files.enter_context(stdout.open("wb")) if isinstance(stdout, Path) else stdout,
                stderr=files.enter_context(stderr.open("wb")) if isinstance(stderr, Path) else stderr,
                env={**environment, STARTED_BY: str(os.getpid())},
                start_new_session=True,
            )
        return self._add(popen, is_agent=is_agent)

    def start_ranks(
        self,
        command: Sequence[str],
        num_ranks: int,
        folder: Path,
        *,
        stdout: Path | None = None,
        stderr: Callable[[int], Path | None] = _nothing,
        **settings: str,
    ) -> None:
        """Start the ranks of a run on this host. Rank 0 prints; the others print the same, which is dropped.

        Args:
            command: The program of every rank, and its arguments.
            num_ranks: The number of ranks.
            folder: The directory of the run, through which the ranks meet.
            stdout: The file of rank 0's standard output, or None for that of this process.
            stderr: The file of a rank's standard error, or None for that of this process.
            **settings: Environment variables to set where the environment of this process does not.
        """
        for rank, environment in enumerate(rank_environments(num_ranks, folder, **settings)):
            self.start(command, environment, stdout=subprocess.DEVNULL if rank else stdout, stderr=stderr(rank))

    def fork(self, main: Callable[[], int]) -> Process:
        """Start a copy of this process, which shares its modules and data. Linux only.

        Args:
            main: Runs in the copy, and returns its exit code.
        """
        parent = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # otherwise both processes would write what is buffered
        pid = os.fork()
        if not pid:
            _run_forked(main, parent)
        _lead_group(pid)
        return self._add(_ForkedProcess(pid))

    def poll(self) -> bool:
        """Update the exit codes, and end all processes if one has failed. Returns whether any is running."""
        for process in self._running():
            code = process.handle.poll()
            if code is None:
                continue
            self._note_exit(process, code, was_stopped=self._is_from_shutdown(code))
            if code and self.first_failed is None:
                self.first_failed = process
                self._shut_down()
        if time.monotonic() > self._kill_at_s and not self._is_killed:
            self._is_killed = True
            for process in self._running():
                _signal_group(process, signal.SIGKILL)
        return bool(self._running())

    def wait(self, meanwhile: Callable[[], None] = _nothing, *, limit_s: float = math.inf) -> bool:
        """Wait until all processes have ended.

        Args:
            meanwhile: Called every `poll_s` seconds while any is running.
            limit_s: The longest time to wait.

        Returns:
            Whether all have ended.
        """
        end_s = time.monotonic() + limit_s
        while self.poll():
            if time.monotonic() > end_s:
                return False
            meanwhile()
            time.sleep(self.poll_s)
        return True

    def wait_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait until a condition holds. Returns False if a process has failed or the time is over before."""
        end_s = time.monotonic() + limit_s
        while not condition():
            self.poll()
            if self.first_failed is not None or time.monotonic() > end_s:
                return False
            time.sleep(self.poll_s)
        return True

    def stop(self) -> None:
        """End all processes at once; agents get a moment to end theirs."""
        for process in self._running():
            _signal_group(process, signal.SIGTERM if process.is_agent else signal.SIGKILL)
        end_s = time.monotonic() + GRACE_S
        while running := self._running():
            for process in running:
                code = process.handle.poll()
                if code is not None:
                    self._note_exit(process, code, was_stopped=True)
                elif time.monotonic() > end_s:
                    _signal_group(process, signal.SIGKILL)
            time.sleep(STOP_POLL_S)

    @property
    def exit_code(self) -> int:
        """The exit code of the process that failed first, or 0. Negative for a signal."""
        return 0 if self.first_failed is None else self.first_failed.code or 0

    def _add(self, handle: ProcessHandle, *, is_agent: bool = False) -> Process:
        self.processes.append(Process(handle, len(self.processes), is_agent))
        return self.processes[-1]

    def _running(self) -> list[Process]:
        return [process for process in self.processes if process.code is None]

    def _note_exit(self, process: Process, code: int, *, was_stopped: bool) -> None:
        process.code, process.was_stopped = code, was_stopped
        self.on_exit(process)

    def _shut_down(self) -> None:
        for process in self._running():
            with suppress(ProcessLookupError):
                os.kill(process.handle.pid, signal.SIGTERM)
        self._kill_at_s = time.monotonic() + SHUTDOWN_S

    def _is_from_shutdown(self, code: int) -> bool:
        if self.first_failed is None:
            return False
        return code in STOPPED_CODES or (self._is_killed and code == -signal.SIGKILL)


class _ForkedProcess:
    """The handle of a forked process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def _run_forked(main: Callable[[], int], parent: int) -> NoReturn:
    """Run a forked process, which is as independent of its parent's state as a process of another program."""
    code = 1
    try:
        _lead_group(0)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent)
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        exit_now(code)


def _lead_group(pid: int) -> None:
    """Let a forked process lead a group. Parent and child both do it, so that it is done when either continues."""
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def _signal_group(process: Process, number: int) -> None:
    """Signal a process and those that it has started in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.handle.pid, number)


def stderr_path(folder: Path, name: int | str) -> Path:
    """The file of a process's standard error."""
    return folder / f"{name}.stderr"
