"""Warm start: the ranks of a run are forked from one process that has imported torch.

To import torch and Penstock's runtime takes each process more than three seconds of CPU time. Here one process does it
for all ranks of a run: the template (`python -m penstock.dist.template`). It imports the modules, forks every rank, and
exits. Ranks are as independent of each other as processes of a program: each leads a session, has its own
environment and output, and runs its module as `__main__`.

The launcher becomes the parent of the ranks when the template exits, as the "child subreaper" of the process tree
(`man 2 PR_SET_CHILD_SUBREAPER`). From then on it waits for a forked rank as for any other child.
"""

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path
from typing import Any

import msgspec

from penstock.dist.processes import RankModule

SWITCH = "PENSTOCK_WARM_START"
"""The environment variable that turns the warm start off, if it is 0."""
TORCH_MODULES = ("torch.distributed", "torch._dynamo")
"""Imported for every run. Making an optimizer imports `torch._dynamo`, and so do compiled models."""
ACCELERATORS = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/dri/render*", "/dev/accel*")
"""Device files. A driver that a process has initialized does not work in its forks."""
UNSAFE_CODE = 75
"""The exit code of a template that has threads after the imports: its forks could wait for their locks for ever."""
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class RankSettings(msgspec.Struct, frozen=True):
    """How a rank differs from the template."""

    environment: dict[str, str]
    stdout: str | None
    """The file of its standard output; None: that of the template."""
    stderr: str | None


class TemplateSettings(msgspec.Struct, frozen=True):
    """What a template does."""

    ranks: list[RankSettings]
    preload: list[str]
    """Modules to import before the forks. One that cannot be imported is left to the ranks."""
    pids_file: str
    """Every rank appends its number and its process id."""
    pipe: int
    """A file descriptor. Every rank closes it when its process id is in the file."""


class ServerSettings(msgspec.Struct, frozen=True):
    """What a template that stays does first."""

    preload: list[str]
    requests: int
    """A file descriptor: each line is the path of a `ForkRequest`."""
    answers: int
    """A file descriptor: a line when it is ready, and one for each request."""


class ForkRequest(msgspec.Struct, frozen=True):
    """Ranks to fork."""

    ranks: list[RankSettings]
    """With their whole environment."""
    module: str
    arguments: list[str]
    pids_file: str


def can_fork() -> bool:
    """Whether the ranks of a run may be forked: on Linux, where no accelerator is visible, unless turned off."""
    if sys.platform != "linux" or os.environ.get(SWITCH) == "0":
        return False
    return not any(glob(pattern) for pattern in ACCELERATORS)


def template_command(settings: Path, module: RankModule) -> list[str]:
    """The command of a template, whose `TemplateSettings` are in a file. It ends with the ranks' own command."""
    return [sys.executable, "-m", "penstock.dist.template", str(settings), module.name, *module.arguments]


def read_pids(path: Path) -> dict[int, int]:
    """The process ids of ranks, by number."""
    if not path.exists():
        return {}
    return {int(rank): int(pid) for rank, pid in map(str.split, path.read_text().splitlines())}


class RankTemplate:
    """A template that stays, for runs that start ranks several times. A context manager; Linux only.

    It imports torch beside whatever this process does until ranks are first started.

    Args:
        folder: A directory that only this user can open.
        preload: Modules that ranks import, besides torch.
    """

    def __init__(self, folder: Path, preload: Sequence[str]) -> None:
        self._folder, self._preload = folder, [*TORCH_MODULES, *preload]
        self._stack = ExitStack()
        self._num_requests = 0
        self._requests = self._answers = -1
        self._process: Any = None

    def __enter__(self) -> "RankTemplate":
        from penstock.dist.launcher import open_process

        self._stack.enter_context(adopting_orphans())
        (reads, self._requests), (self._answers, writes) = os.pipe(), os.pipe()
        path = self._folder / "template.json"
        path.write_bytes(msgspec.json.encode(ServerSettings(self._preload, reads, writes)))
        command = [sys.executable, "-m", "penstock.dist.template", "--serve", str(path)]
        # torch reads this variable when it is imported.
        environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
        log = self._folder / "template.log"
        self._process = open_process(command, environment, stdout=log, stderr=log, pass_fds=(reads, writes))
        os.close(reads)
        os.close(writes)
        return self

    def __exit__(self, *_error: object) -> None:
        for number in (self._requests, self._answers):
            os.close(number)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._stack.close()

    def fork(self, module: RankModule, ranks: list[RankSettings]) -> list[int] | None:
        """Fork ranks, which become children of this process.

        Args:
            module: Their program.
            ranks: Their whole environments and outputs.

        Returns:
            Their process ids. None: the template has found that a fork is not safe, or has ended.
        """
        path, pids_file = (self._folder / f"{name}-{self._num_requests}" for name in ("fork", "pids"))
        request = ForkRequest(ranks, module.name, list(module.arguments), str(pids_file))
        path.write_bytes(msgspec.json.encode(request))
        if not self._num_requests and not self._answer():
            return None
        self._num_requests += 1
        try:
            os.write(self._requests, f"{path}\n".encode())
        except BrokenPipeError:
            return None
        if not self._answer():
            return None
        pids = read_pids(pids_file)
        path.unlink()
        pids_file.unlink()
        return [pids[number] for number in range(len(ranks))]

    def _answer(self) -> bool:
        """Wait for a line. False if the template has ended."""
        line = b""
        while not line.endswith(b"\n"):
            data = os.read(self._answers, 64)
            if not data:
                return False
            line += data
        return True


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Become the parent of processes whose parent, started by this process, exits meanwhile."""
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _prctl(option: int, value: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")

