"""Running the ranks of a training: torchrun in a process of its own, and reading along what the ranks tell."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from penstock.launch.events import Began, Done, Event, EventReader, Failed, LineReader, Noted, Sampled, Started, Stepped

POLL_S = 0.05
GRACE_S = 3.0
"""So long torchrun may take to end, when its ranks have been ended."""
STARTED_BY = "PENSTOCK_STARTED_BY"
"""Where ranks find the process that started them: they do not outlive it, however it ends."""
SHUTDOWN_S = 8
"""So long torchrun lets ranks go on when one has gone."""


@dataclass
class RankState:
    """What is known of a rank."""

    rank: int
    local_rank: int = -1
    pid: int = 0
    step: int | None = None
    failed: Failed | None = None
    is_done: bool = False


@dataclass
class Run:
    """What came of a run, as far as it came."""

    ranks: list[RankState]
    steps: list[Stepped] = field(default_factory=list)
    samples: list[Sampled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exit_code: int = 0
    was_stopped: bool = False
    """By Ctrl-C, or by a signal that asks to end."""
    log: str = ""
    """What torchrun and the ranks wrote to standard error."""


def run_ranks(
    command: Sequence[str],
    folder: Path,
    ranks: Sequence[int],
    *,
    watch: Callable[[Run, Event], None],
    said: Callable[[str], None],
    **settings: str,
) -> Run:
    """Run a command whose ranks report into `folder`. `watch` sees every event, `said` what the script prints.

    `settings` are of its environment, where that does not say otherwise.
    Ctrl-C ends all ranks at once; what they have told until then is kept.
    """
    run = Run([RankState(rank) for rank in ranks])
    readers = [EventReader(folder, rank) for rank in ranks]
    printed = LineReader(folder / "stdout")
    environment = {"OMP_NUM_THREADS": "1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_S)}
    environment |= settings | os.environ | {STARTED_BY: str(os.getpid())}
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
        # In a session of its own: Ctrl-C comes to us, and we end the others.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=environment, start_new_session=True
        )

        def listen() -> None:
            for state, reader in zip(run.ranks, readers, strict=True):
                for event in reader.new_events():
                    _take(run, state, event)
                    watch(run, event)
            for line in printed.new_lines():
                said(line.decode(errors="replace"))

        try:
            with ending_politely():
                while process.poll() is None:
                    listen()
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            run.was_stopped = True
        finally:
            _end(process, run)
        listen()
    run.exit_code = process.returncode
    run.log = (folder / "stderr").read_text(errors="replace")
    return run


def _take(run: Run, state: RankState, event: Event) -> None:
    match event:
        case Started():
            state.local_rank, state.pid = event.local_rank, event.pid
        case Began():
            state.step = event.step
        case Failed():
            state.failed = event
        case Done():
            state.is_done = True
        case Stepped():
            run.steps.append(event)
        case Sampled():
            run.samples.append(event)
        case Noted() if event.text not in run.notes:
            run.notes.append(event.text)


@contextmanager
def ending_politely() -> Iterator[None]:
    """A request to end is taken as Ctrl-C: the ranks must not be left behind."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may listen to signals
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes], run: Run) -> None:
    """Nothing that we started runs on."""
    if process.poll() is not None:
        return
    for state in run.ranks:
        # A rank has a session of its own, so it would outlive torchrun.
        if state.pid and not state.is_done:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(state.pid, signal.SIGKILL)
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
