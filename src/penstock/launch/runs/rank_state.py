"""What is known of each rank of a run, from its events, its status board and its process."""

import socket
from dataclasses import dataclass, field
from pathlib import Path

from penstock.dist import LastStatus
from penstock.launch.runs.events import Exited, Failed, MemoryMeasured, Paused, Sampled, Stepped, Stopping


@dataclass
class RankState:
    """The state of a rank, as far as its events, its status board and its exit status tell."""

    rank: int
    local_rank: int = -1
    pid: int = 0
    step: int | None = None
    failed: Failed | None = None
    is_done: bool = False
    exited: Exited | None = None
    output: str = ""
    """Its standard error, where it has a file of its own."""
    host: str = field(default_factory=socket.gethostname)
    device: str = ""
    """Its device in the plan, if known."""
    memory: MemoryMeasured | None = None
    """The memory of its accelerator, if it has one."""
    status: LastStatus | None = None
    """What it did last: when the first failure was noticed, or when it ended."""
    is_stopped: bool = False
    """Whether a signal such as SIGSTOP has stopped its process, which has not been continued since."""
    is_lost: bool = False
    """Whether its host is lost."""

    @property
    def when(self) -> str:
        """Where in the run it was, as a part of a sentence."""
        if self.status is not None and self.status.phase != self.status.phase.STEP:
            return self.status.when
        return "before its first step" if self.step is None else f"at step {self.step}"

    @property
    def place(self) -> str:
        """Action, device and host, as a part of a sentence; empty if nothing is known."""
        if self.status is None:
            return ""
        device = self.status.device or self.device
        where = f" ({f'device {device}, ' if device else ''}host {self.host})"
        if not self.status.action:
            return where
        if self.status.phase != self.status.phase.STEP:
            return f", {self.status.action}{where}"
        return f", {'waiting in' if self.status.is_waiting else 'in'} {self.status.action}{where}"


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
    """The rank that was first to end with a failure, if known."""
    ended_why: str = ""
    """Why the run was ended from outside of its ranks, such as by a host that is lost."""
    stopping: Stopping | None = None
    """Set if a signal asked the ranks to finish their step, save and end."""
    paused: Paused | None = None
    """Set if the ranks ended after a step so that others go on."""
    memory_kills: int | None = None
    """How many processes the kernel has killed for lack of memory on this host meanwhile; None if it does not tell."""


def count_memory_kills() -> int | None:
    """How many processes this kernel has killed for lack of memory so far. None if it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def is_process_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False
