"""Processes of a run as the launcher sees them: process ids, exit codes, and signals to their groups."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RankModule:
    """The Python module that every rank of a run executes as a program, with its arguments."""

    name: str
    arguments: Sequence[str] = ()
    preload: tuple[str, ...] = ()
    """Modules that it imports, besides torch. They are imported once, before the ranks are forked from one process."""

    @property
    def command(self) -> list[str]:
        """The command that runs it in a process of its own."""
        return [sys.executable, "-m", self.name, *self.arguments]


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


class ForkedProcess:
    """The handle of a forked process, a child of this one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return the exit code, -n for signal n, or None if the process is running. Reaps it."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def lead_group(pid: int) -> None:
    """Let a forked process lead a group. Parent and child both do it, so that it is done when either continues."""
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def signal_group(pid: int, number: int) -> None:
    """Signal a process and those that it has started in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
