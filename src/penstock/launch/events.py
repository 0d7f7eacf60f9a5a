"""What ranks tell whoever started them: each writes lines into a file of its own, and somebody reads along.

The lines are MessagePack as text: JSON has no word for a loss that is not a number.
"""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from penstock.emulation import Lateness


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A rank is there."""

    rank: int
    local_rank: int
    pid: int


class Noted(msgspec.Struct, frozen=True, tag="noted"):
    """Something that the user should know."""

    text: str


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A rank begins a step."""

    step: int


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """The optimizer has stepped; only rank 0 tells."""

    step: int
    loss: float
    num_rows: int
    seconds: float
    """The whole step, with all that belongs to it."""


class Sampled(msgspec.Struct, frozen=True, tag="sampled"):
    """When each action of an iteration began and ended, in the order of the program; only rank 0 tells."""

    step: int
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


class Noticed(msgspec.Struct, frozen=True, tag="noticed"):
    """How this machine kept up with an emulated iteration; only rank 0 tells."""

    step: int
    busy: float
    """The share of its processors that was busy."""
    lateness: tuple[Lateness, ...]
    """By rank."""


class LinksChanged(msgspec.Struct, frozen=True, tag="links_changed"):
    """Links of an emulation have another bandwidth from now on, as was asked for."""

    fault: int
    """Its number among the emulation's link faults."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The rank cannot go on."""

    kind: str
    """The name of the error's type."""
    text: str
    is_input: bool
    """Whether something in the input must be mended."""
    table: str = ""
    """What each rank did last, if this rank knows."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The rank has done all that it was to do."""


Event: TypeAlias = Started | Noted | Began | Stepped | Sampled | Noticed | LinksChanged | Failed | Done


def events_path(folder: Path, rank: int) -> Path:
    """Where a rank writes its lines."""
    return folder / f"rank-{rank}.events"


class EventWriter:
    """A rank's end. Every line is there for others as soon as it is written."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file: IO[bytes] = events_path(folder, rank).open("ab", buffering=0)

    def tell(self, event: Event) -> None:
        """Write a line."""
        self._file.write(b64encode(msgspec.msgpack.encode(event)) + b"\n")


class LineReader:
    """The lines of a file that grows; what has no line end yet is left for later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def new_lines(self) -> list[bytes]:
        """What has come since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                found = file.read()
        except FileNotFoundError:
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()


class EventReader:
    """The other end: all that a rank has told since the last time."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._lines = LineReader(events_path(folder, rank))

    def new_events(self) -> list[Event]:
        """In order."""
        return [msgspec.msgpack.decode(b64decode(line), type=Event) for line in self._lines.new_lines()]
