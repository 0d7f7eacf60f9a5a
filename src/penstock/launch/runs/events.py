"""Events of ranks. Each rank appends lines to a file of its own, and the process that started the ranks reads them.

The lines are MessagePack as text: JSON cannot represent a loss that is not a number.
"""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from penstock.emulation import Lateness
from penstock.errors import InputError, PeerLost, PenstockError, RuntimeTimeout, StatusTable


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A rank process runs."""

    rank: int
    local_rank: int
    pid: int
    """0 where process numbers are not those of this host."""


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    """A remark for the user."""

    text: str


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A rank begins a step."""

    step: int


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """The optimizer has stepped. Rank 0 reports it."""

    step: int
    loss: float
    num_rows: int
    seconds: float
    """Duration of the whole step, including data loading and the optimizer."""


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    """Start and end of each action of an iteration, in the order of the program. Rank 0 reports them."""

    step: int
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


class MemoryMeasured(msgspec.Struct, frozen=True, tag="memory_measured"):
    """The memory that a rank has used on its accelerator, in bytes."""

    peak_bytes: int
    """The most that tensors have taken at a time."""
    reserved_bytes: int
    """The most that the allocator has taken."""
    outside_bytes: int
    """What the driver, communicators and libraries take."""
    total_bytes: int


class Noticed(msgspec.Struct, frozen=True, tag="noticed"):
    """How well this machine kept up with an emulated iteration. Rank 0 reports it."""

    step: int
    busy: float
    """The share of its processors that was busy."""
    lateness: tuple[Lateness, ...]
    """By rank."""


class LinksChanged(msgspec.Struct, frozen=True, tag="links_changed"):
    """An emulation has changed the bandwidth of links, as a fault asks for."""

    fault: int
    """Index of the fault among the emulation's link faults."""


class Switched(msgspec.Struct, frozen=True, tag="switched"):
    """All ranks have changed to another plan. Rank 0 reports it."""

    step: int
    """The first step with the new plan."""
    number: int
    """The number of the plan; the first one has 0."""
    seconds: float
    num_bytes: float
    """Bytes of parameters and optimizer state that have moved."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The rank has raised an error and ends."""

    kind: str
    """The name of the error's type."""
    what: str
    where: str = ""
    hint: str = ""
    is_input: bool = False
    """Whether the input is invalid, rather than the run having failed."""
    is_peer_lost: bool = False
    """Whether the rank only noticed that another one was gone."""
    is_timeout: bool = False
    """Whether the rank only noticed that another one did not answer in time."""
    detail: str = ""
    """The text of the error, if `what` does not contain it."""
    status_table: str = ""
    """What each rank did last, if this rank has collected it."""


class Stopping(msgspec.Struct, frozen=True, tag="stopping"):
    """The rank ends before all steps are done, because a signal asked for it."""

    num_steps: int
    """The number of steps that are done."""
    is_saved: bool
    """Whether there is a checkpoint of them."""


class Resumed(msgspec.Struct, frozen=True, tag="resumed"):
    """Rank 0 goes on from a state that earlier ranks of this run have left, or begins anew if there is none."""

    num_steps: int
    """The number of steps that are done."""


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """The rank ends after a step, with a copy of its state, so that others go on with another plan."""

    num_steps: int
    """The number of steps that are done."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The rank has finished its work."""


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """The rank process has ended. The process that started it reports this."""

    code: int
    """The exit code; -n if signal n ended the process."""
    was_stopped: bool = False
    """Whether the launcher ended it, because another rank had failed."""

    at_s: float = 0.0
    """When the launcher noticed it, on the clock of `time.monotonic`."""

    @property
    def signal(self) -> int | None:
        """The signal that ended the process, if one did."""
        return -self.code if self.code < 0 else self.code - 128 if self.code > 128 else None


Event: TypeAlias = (
    Started
    | Noted
    | Began
    | Stepped
    | Sampled
    | MemoryMeasured
    | Noticed
    | LinksChanged
    | Switched
    | Failed
    | Stopping
    | Resumed
    | Paused
    | Done
    | Exited
)


def failed_event(error: BaseException) -> Failed:
    """The event for an error that a rank raises."""
    kind = type(error).__name__
    if isinstance(error, PenstockError):
        return Failed(
            kind,
            error.what,
            error.where,
            error.hint,
            is_input=isinstance(error, InputError),
            is_peer_lost=isinstance(error, PeerLost),
            is_timeout=isinstance(error, RuntimeTimeout),
            status_table=next((str(note) for note in _notes(error) if isinstance(note, StatusTable)), ""),
        )
    if isinstance(error, MemoryError):
        first_line = str(error).partition("\n")[0]
        return Failed(kind, "a rank ran out of memory", hint="Plan for a smaller micro-batch size.", detail=first_line)
    return Failed(kind, f"{kind}: {error}")


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def events_path(folder: Path, rank: int) -> Path:
    """The file of a rank's events."""
    return folder / f"rank-{rank}.events"


class EventWriter:
    """Appends events to a rank's file. Readers see a line as soon as it is written."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file: IO[bytes] = events_path(folder, rank).open("ab", buffering=0)

    def write(self, event: Event) -> None:
        """Append an event."""
        self._file.write(b64encode(msgspec.msgpack.encode(event)) + b"\n")


class LineReader:
    """Reads the complete lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new_lines(self) -> list[bytes]:
        """The lines since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        lines = data[: data.rfind(b"\n") + 1]
        self._read += len(lines)
        return lines.splitlines()


class EventReader:
    """Reads a rank's events."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._lines = LineReader(events_path(folder, rank))

    def new_events(self) -> list[Event]:
        """The events since the last call, in order."""
        return [msgspec.msgpack.decode(b64decode(line), type=Event) for line in self._lines.new_lines()]
