"""Starts the processes of a run on this host, supervises them, and ends them together.

Every command that starts processes uses this module: `train`, `check --numerics`, `cluster probe --local`, `emulate`,
and `profile --busy-processes`. Ranks of one host meet through a directory of their user (see `penstock.dist`), so no
port is open to the network.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from penstock.dist import delay_sigterm, local_environment
from penstock.launch.processes.events import Exited

POLL_S = 0.05
SHUTDOWN_S = 8.0
"""After one process has failed, the others get SIGTERM, and SIGKILL this much later."""
GRACE_S = 3.0
"""How long an agent such as torchrun may take to end its own processes."""
STARTED_BY = "PENSTOCK_STARTED_BY"
"""The environment variable with the process that started a rank. Ranks end when it has ended."""
CHECK_PARENT_S = 1.0


@dataclass
class Process:
    """A process of a run."""

    popen: subprocess.Popen[bytes]
    is_agent: bool
    """Whether it starts ranks itself, as torchrun does."""
    exited: Exited | None = None


@dataclass
class Launcher:
    """The processes of a run. Use it as a context manager: at the end no process is left."""

    processes: list[Process] = field(default_factory=list)
    first_failed: Process | None = None
    """The process that was first to end with another exit code than 0."""
    _kill_at_s: float = float("inf")
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
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        is_agent: bool = False,
    ) -> Process:
        """Start a process in a session of its own: Ctrl-C reaches this process only, which ends the others."""
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**environment, STARTED_BY: str(os.getpid())},
            start_new_session=True,
        )
        self.processes.append(Process(popen, is_agent))
        return self.processes[-1]

    def poll(self) -> bool:
        """Update the exit statuses, and end all processes if one has failed. Returns whether any is running."""
        for process in self.processes:
            if process.exited is not None:
                continue
            code = process.popen.poll()
            if code is None:
                continue
            process.exited = Exited(code, was_stopped=self._is_from_shutdown(code))
            if code and self.first_failed is None:
                self.first_failed = process
                self._shut_down()
        if time.monotonic() > self._kill_at_s and not self._is_killed:
            self._is_killed = True
            for process in self._running():
                _signal_group(process, signal.SIGKILL)
        return bool(self._running())

    def wait(self) -> None:
        """Wait until all processes have ended."""
        while self.poll():
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End all processes at once; agents get a moment to end theirs."""
        for process in self._running():
            _signal_group(process, signal.SIGTERM if process.is_agent else signal.SIGKILL)
        end_s = time.monotonic() + GRACE_S
        for process in self._running():
            try:
                process.popen.wait(max(0.0, end_s - time.monotonic()) if process.is_agent else None)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.popen.wait()
            process.exited = Exited(process.popen.returncode, was_stopped=True)

    @property
    def exit_code(self) -> int:
        """The exit code of the process that failed first, or 0. Negative for a signal."""
        return 0 if self.first_failed is None else self.first_failed.popen.returncode

    def _running(self) -> list[Process]:
        return [process for process in self.processes if process.exited is None]

    def _shut_down(self) -> None:
        for process in self._running():
            with suppress(ProcessLookupError):
                process.popen.send_signal(signal.SIGTERM)
        self._kill_at_s = time.monotonic() + SHUTDOWN_S

    def _is_from_shutdown(self, code: int) -> bool:
        if self.first_failed is None:
            return False
        return code in (-signal.SIGTERM, 128 + signal.SIGTERM) or (self._is_killed and code == -signal.SIGKILL)


def _signal_group(process: Process, number: int) -> None:
    """Signal a process and those that it has started in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.popen.pid, number)


def rank_environments(num_ranks: int, folder: Path, **defaults: str) -> list[dict[str, str]]:
    """The environments of ranks that all run on this host.

    Args:
        num_ranks: The number of ranks.
        folder: A directory that only this user can open.
        **defaults: Variables to set where the environment of this process does not.
    """
    shared = defaults | os.environ | local_environment(folder)
    return [
        {
            **shared,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(num_ranks),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "GROUP_RANK": "0",
        }
        for rank in range(num_ranks)
    ]


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that no rank is left running."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare_rank() -> None:
    """Make this process a rank: it ends with the process that started it, and delays SIGTERM to report its error."""
    exit_with_parent()
    delay_sigterm(lambda: "")


def exit_with_parent() -> None:
    """End this process when the one that started the run has ended, however that was."""
    parent = int(os.environ.get(STARTED_BY, "0"))

    def watch() -> None:
        while True:
            time.sleep(CHECK_PARENT_S)
            try:
                os.kill(parent, 0)
            except ProcessLookupError:
                os._exit(1)

    if parent:
        threading.Thread(target=watch, name="penstock-parent", daemon=True).start()
