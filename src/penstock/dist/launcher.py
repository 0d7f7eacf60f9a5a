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
from typing import Any, NoReturn

import msgspec

from penstock.dist.parent import STARTED_BY, die_with_parent
from penstock.dist.processes import ForkedProcess, Process, ProcessHandle, RankModule, lead_group, signal_group
from penstock.dist.rendezvous import HostPlace, rank_environments
from penstock.dist.shutdown import STOPPED_CODES, exit_now
from penstock.dist.warm_start import (
    TORCH_MODULES,
    UNSAFE_CODE,
    RankSettings,
    RankTemplate,
    TemplateSettings,
    adopting_orphans,
    can_fork,
    read_pids,
    template_command,
)

POLL_S = 0.05
STOP_POLL_S = 0.005
SHUTDOWN_S = 8.0
"""After one process has failed, the others get SIGTERM, and SIGKILL this much later."""
GRACE_S = 3.0
"""How long an agent such as torchrun may take to end its own processes."""


def _nothing(*_arguments: Any) -> None:
    pass


@dataclass
class Launcher:
    """The processes of a run. Use it as a context manager: at the end no process is left."""

    on_exit: Callable[[Process], None] = _nothing
    """Called once for every process that has ended."""
    has_failed: Callable[[Process, int], bool] = lambda _process, code: code != 0
    """Whether a process that has ended with an exit code has failed."""
    poll_s: float = POLL_S
    processes: list[Process] = field(default_factory=list)
    first_failed: Process | None = None
    """The process that was first to end with a failure, before any was told to end."""
    is_ending: bool = False
    """Whether all processes have been told to end."""
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
        return self._add(open_process(command, environment, stdout=stdout, stderr=stderr), is_agent=is_agent)

    def start_ranks(
        self,
        module: RankModule,
        num_ranks: int,
        folder: Path,
        *,
        stdout: Path | None = None,
        stderr: Callable[[int], Path | None] = _nothing,
        place: HostPlace | None = None,
        template: RankTemplate | None = None,
        local_ranks: Sequence[int] | None = None,
        **settings: str,
    ) -> None:
        """Start the ranks of a run on this host. The first prints; the others print the same, which is dropped.

        Where it is safe, ranks are forked from one process that has imported torch (`penstock.dist.warm_start`).

        Args:
            module: The program of every rank.
            num_ranks: The number of ranks.
            folder: The directory of the run, through which the ranks meet.
            stdout: The file of rank 0's standard output, or None for that of this process.
            stderr: The file of a rank's standard error; None for that of this process. All ranks have one, or none.
            place: Their place among the ranks of several hosts. None: all ranks are on this host.
            template: The template that forks them, if there is one that stays.
            local_ranks: The number of each rank's device on this host. None: that of the rank.
            **settings: Environment variables to set where the environment of this process does not.
        """
        environments = rank_environments(num_ranks, folder, place, **settings)
        for environment, number in zip(environments, local_ranks or (), strict=False):
            environment["LOCAL_RANK"] = str(number)
        outputs = [stderr(rank) for rank in range(num_ranks)]
        if template is not None and self._fork_from(template, module, environments, stdout, outputs):
            return
        if can_fork() and self._fork_ranks(module, environments, folder, stdout, outputs):
            return
        for rank, environment in enumerate(environments):
            self.start(module.command, environment, stdout=subprocess.DEVNULL if rank else stdout, stderr=outputs[rank])

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
        lead_group(pid)
        return self._add(ForkedProcess(pid))

    def poll(self) -> bool:
        """Update the exit codes, and end all processes if one has failed. Returns whether any is running."""
        for process in self._running():
            code = process.handle.poll()
            if code is None:
                continue
            was_stopped = self._is_from_shutdown(code)
            self._note_exit(process, code, was_stopped=was_stopped)
            if not was_stopped and self.first_failed is None and self.has_failed(process, code):
                self.first_failed = process
                self.shut_down()
        if time.monotonic() > self._kill_at_s and not self._is_killed:
            self._is_killed = True
            for process in self._running():
                signal_group(process.handle.pid, signal.SIGKILL)
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

    def shut_down(self, kill_after_s: float | None = None) -> None:
        """Tell all processes to end, once. Kill them `kill_after_s` later (`SHUTDOWN_S`); a later call can shorten that."""
        if not self.is_ending:
            self.is_ending = True
            for process in self._running():
                with suppress(ProcessLookupError):
                    os.kill(process.handle.pid, signal.SIGTERM)
        self._kill_at_s = min(self._kill_at_s, time.monotonic() + (SHUTDOWN_S if kill_after_s is None else kill_after_s))

    def stop(self) -> None:
        """End all processes at once; agents get a moment to end theirs."""
        for process in self._running():
            signal_group(process.handle.pid, signal.SIGTERM if process.is_agent else signal.SIGKILL)
        end_s = time.monotonic() + GRACE_S
        while running := self._running():
            for process in running:
                code = process.handle.poll()
                if code is not None:
                    self._note_exit(process, code, was_stopped=True)
                elif time.monotonic() > end_s:
                    signal_group(process.handle.pid, signal.SIGKILL)
            time.sleep(STOP_POLL_S)

    @property
    def exit_code(self) -> int:
        """The exit code of the process that failed first, or 0. Negative for a signal."""
        return 0 if self.first_failed is None else self.first_failed.code or 0

    def _add(self, handle: ProcessHandle, *, is_agent: bool = False) -> Process:
        self.processes.append(Process(handle, len(self.processes), is_agent))
        return self.processes[-1]

    def _fork_ranks(
        self,
        module: RankModule,
        environments: Sequence[Mapping[str, str]],
        folder: Path,
        stdout: Path | None,
        stderr: Sequence[Path | None],
    ) -> bool:
        """Let a template fork the ranks. Returns False if it found that this is not safe."""
        first, *others = environments
        ranks = [RankSettings({}, None, None)]
        for environment, path in zip(others, stderr[1:], strict=True):
            changed = dict(environment.items() - first.items())
            ranks.append(RankSettings(changed, os.devnull, None if path is None else str(path)))
            if path is not None:
                path.touch()  # so that it exists even if the template fails
        path, pids_file = folder / "template.json", folder / "pids"
        reader, writer = os.pipe()
        with adopting_orphans(), os.fdopen(reader, "rb", buffering=0) as pipe:
            settings = TemplateSettings(ranks, [*TORCH_MODULES, *module.preload], str(pids_file), writer)
            path.write_bytes(msgspec.json.encode(settings))
            command = template_command(path, module)
            try:
                template = open_process(command, first, stdout=stdout, stderr=stderr[0], pass_fds=(writer,))
            finally:
                os.close(writer)
            try:
                pipe.read()
            except BaseException:
                template.kill()
                pipe.read()
                raise
            finally:
                code = template.wait()
                pids = read_pids(pids_file)
                if code != UNSAFE_CODE:
                    for rank in range(len(ranks)):
                        self._add(ForkedProcess(pids[rank]) if rank in pids else template)
        return code != UNSAFE_CODE

    def _fork_from(
        self,
        template: RankTemplate,
        module: RankModule,
        environments: Sequence[Mapping[str, str]],
        stdout: Path | None,
        stderr: Sequence[Path | None],
    ) -> bool:
        """Let a template that stays fork the ranks. Returns False if it cannot."""
        own = {STARTED_BY: str(os.getpid())}
        ranks = [
            RankSettings({**environment, **own}, os.devnull if rank else str(stdout), None if path is None else str(path))
            for rank, (environment, path) in enumerate(zip(environments, stderr, strict=True))
        ]
        for path in stderr:
            if path is not None:
                path.touch()
        pids = template.fork(module, ranks)
        for pid in pids or ():
            self._add(ForkedProcess(pid))
        return pids is not None

    def _running(self) -> list[Process]:
        return [process for process in self.processes if process.code is None]

    def _note_exit(self, process: Process, code: int, *, was_stopped: bool) -> None:
        process.code, process.was_stopped = code, was_stopped
        self.on_exit(process)

    def _is_from_shutdown(self, code: int) -> bool:
        return self.is_ending and (code in STOPPED_CODES or (self._is_killed and code == -signal.SIGKILL))


def open_process(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout: int | Path | None,
    stderr: int | Path | None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own."""
    with ExitStack() as files:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=files.enter_context(stdout.open("wb")) if isinstance(stdout, Path) else stdout,
            stderr=files.enter_context(stderr.open("wb")) if isinstance(stderr, Path) else stderr,
            env={**environment, STARTED_BY: str(os.getpid())},
            start_new_session=True,
            pass_fds=pass_fds,
        )


def _run_forked(main: Callable[[], int], parent: int) -> NoReturn:
    """Run a forked process, which is as independent of its parent's state as a process of another program."""
    code = 1
    try:
        lead_group(0)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(parent)
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        exit_now(code)
