"""The status board of a rank: what it does at this moment, in a small file that outlives it.

A rank writes to memory that it shares with the file, at every phase, step, action and wait. So the launcher can read
what a rank did last however it ended, by SIGKILL too, and while it hangs or is stopped. A write takes less than a
microsecond: a few integers, and text only outside of steps.

Every process has one board (`status_board`), in memory of its own until a launcher's rank calls `open_status_board`.
"""

import mmap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

NUM_WORDS = 8
TEXT_BYTES = 960
_NUM_BYTES = 8 * NUM_WORDS + TEXT_BYTES
_PHASE, _STEP, _ACTION, _WAITS, _SINCE_NS, _LENGTH, _FAILED_NS = range(7)
NO_ACTION = -1


class Phase(IntEnum):
    """What a rank of a training run is doing, in the order of a run. Steps and saves alternate."""

    START_UP = 0
    """Imports, the user's script, and meeting the other ranks."""
    MAKING = 1
    """The pipeline and the optimizer are made, and a checkpoint is loaded."""
    STEP = 2
    SAVE = 3
    SHUTDOWN = 4


@dataclass(frozen=True)
class LastStatus:
    """What a rank did last, as its board has it."""

    phase: Phase
    step: int
    """The last step that began; -1 before the first."""
    action: str
    """The action of the program, or what the rank did outside of steps; may be empty."""
    is_waiting: bool
    """Whether it waited for other ranks."""
    for_s: float
    """For how long, until the board was read."""
    device: str
    """The name of its device in the plan; empty if the rank did not know it yet."""
    failed_s: float | None = None
    """When it failed, on the clock of `time.monotonic`; None if it did not notice a failure."""

    @property
    def when(self) -> str:
        """The phase as a part of a sentence."""
        return {
            Phase.START_UP: "in start-up",
            Phase.MAKING: "while making the pipeline",
            Phase.STEP: f"at step {self.step}",
            Phase.SAVE: f"while saving after step {self.step}",
            Phase.SHUTDOWN: "in shutdown",
        }[self.phase]


class StatusBoard:
    """The board of this process.

    Args:
        memory: At least as many bytes as a board has; zeroed.
        program: The file for the names of device and actions; None: they are not kept.
    """

    def __init__(self, memory: mmap.mmap | bytearray | None = None, program: Path | None = None) -> None:
        view = memoryview(bytearray(_NUM_BYTES) if memory is None else memory)
        self._words = view[: 8 * NUM_WORDS].cast("q")
        self._text = view[8 * NUM_WORDS : _NUM_BYTES]
        self._program = program
        self._positions: dict[object, int] = {}
        self._thread = threading.get_ident()
        self._words[_STEP] = -1
        self.enter_phase(Phase.START_UP)

    def enter_phase(self, phase: Phase, step: int | None = None, text: str = "") -> None:
        """Begin a phase, or a part of it.

        Args:
            phase: The phase.
            step: The step that begins. None: that of before.
            text: What this rank does now.
        """
        words = self._words
        words[_ACTION], words[_WAITS], words[_LENGTH] = NO_ACTION, 0, 0
        words[_PHASE] = phase
        if step is not None:
            words[_STEP] = step
        self._write_text(text)

    def set_program(self, device: str, actions: Sequence[object]) -> None:
        """Keep the names of this rank's device and actions."""
        if self._program is not None:
            self._program.write_text("\n".join([device, *map(str, actions)]))
            self._positions = {action: index for index, action in enumerate(actions)}

    def positions(self, actions: Sequence[object]) -> list[int]:
        """Return the positions of actions in the program that was kept, for `begin_action`."""
        return [self._positions.get(action, NO_ACTION) for action in actions]

    def note_failure(self) -> None:
        """Note that this rank has failed; the first time counts."""
        self._words[_FAILED_NS] = self._words[_FAILED_NS] or time.monotonic_ns()

    def begin_action(self, index: int) -> None:
        """Begin an action, by its position in the program; `NO_ACTION` after the last one."""
        words = self._words
        words[_ACTION] = index
        words[_WAITS] = 0
        words[_SINCE_NS] = time.monotonic_ns()

    def begin_wait(self, describe: Callable[[], str] | None = None) -> None:
        """Begin to wait for other ranks. A wait that fails is not ended: it remains the last that this rank did."""
        if threading.get_ident() != self._thread:
            return  # the thread that waits for sends
        words = self._words
        if describe is not None and words[_PHASE] != Phase.STEP and not words[_WAITS]:
            self._write_text(describe())
        words[_WAITS] += 1

    def end_wait(self) -> None:
        """End the wait."""
        if threading.get_ident() == self._thread:
            self._words[_WAITS] -= 1
            if not self._words[_WAITS] and self._words[_PHASE] != Phase.STEP:
                self._write_text("")

    @contextmanager
    def waiting(self, describe: Callable[[], str]) -> Iterator[None]:
        """Wait for other ranks inside the context."""
        self.begin_wait(describe)
        yield
        self.end_wait()

    def _write_text(self, text: str) -> None:
        data = text.encode()[:TEXT_BYTES]
        self._words[_LENGTH] = 0
        self._text[: len(data)] = data
        self._words[_LENGTH] = len(data)
        self._words[_SINCE_NS] = time.monotonic_ns()


_board = StatusBoard()


def status_board() -> StatusBoard:
    """The board of this process."""
    return _board


def open_status_board(folder: Path, rank: int) -> None:
    """Keep the board of this process in a file, as a rank of a run.

    Args:
        folder: The directory of the run.
        rank: This rank.
    """
    global _board  # noqa: PLW0603 - one board per process, which every wait writes to
    with _board_path(folder, rank).open("w+b") as file:
        file.truncate(_NUM_BYTES)
        _board = StatusBoard(mmap.mmap(file.fileno(), _NUM_BYTES), _program_path(folder, rank))


def read_status_board(folder: Path, rank: int) -> LastStatus | None:
    """Read what a rank did last. None if it has not opened its board.

    Args:
        folder: The directory of the run.
        rank: The rank.
    """
    try:
        data = _board_path(folder, rank).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _NUM_BYTES:
        return None
    words = memoryview(data)[: 8 * NUM_WORDS].cast("q")
    text = data[8 * NUM_WORDS :][: words[_LENGTH]].decode(errors="replace").removeprefix(f"rank {rank}, ")
    device, actions = _read_program(_program_path(folder, rank))
    index = words[_ACTION]
    return LastStatus(
        phase=Phase(words[_PHASE]),
        step=words[_STEP],
        action=actions[index] if 0 <= index < len(actions) else text,
        is_waiting=words[_WAITS] > 0,
        for_s=max(0.0, (time.monotonic_ns() - words[_SINCE_NS]) / 1e9),
        device=device,
        failed_s=words[_FAILED_NS] / 1e9 or None,
    )


def _read_program(path: Path) -> tuple[str, list[str]]:
    try:
        device, *actions = path.read_text().split("\n")
    except FileNotFoundError:
        return "", []
    return device, actions


def _board_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.status"


def _program_path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.program"
