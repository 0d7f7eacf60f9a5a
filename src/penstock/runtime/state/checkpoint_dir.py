"""A folder of checkpoints: complete ones under their names, unfinished ones under hidden names.

    step-00000030/            complete: it got its name when everything in it was on the disk
    step-00000030-2/          the same step, saved once more
    .step-00000040.1f3a.part/ being written, being removed, or left behind by a writer that was killed
    .lock                     held by a writer as long as it lives

Whoever has the lock may remove what is unfinished: its writer is gone.
"""

import contextlib
import enum
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.errors import FileError, InputError
from penstock.io import decode_json, encode_json, read_bytes, reason, write_whole

FORMAT = "penstock.checkpoint/1"
RECORD = "penstock.json"
_COMPLETE = re.compile(r"step-(\d{8,})(-\d+)?")
_UNFINISHED = re.compile(r"\.step-\d{8,}(-\d+)?\.[0-9a-f]+\.part")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a checkpoint says of itself."""

    format: str = FORMAT
    step: int
    """The number of the next step, counted from 0: so many have been done."""
    number: int
    """Counts the checkpoints of a folder in the order of their writing."""
    seed: int
    """Of the pipeline's random streams."""
    optimizers: tuple[str, ...] = ()
    """Their kinds."""
    world: int
    """How many ranks there were."""


class Complete(msgspec.Struct, frozen=True):
    """A checkpoint that is all there."""

    path: Path
    record: Record


def find_checkpoints(folder: Path) -> list[Complete]:
    """The complete checkpoints of a folder in the order of their writing."""
    found = [Complete(path, read_record(path)) for path in _named(folder, _COMPLETE)]
    return sorted(found, key=lambda item: (item.record.number, item.path.name))


def choose(folder: Path, step: int | None) -> Complete:
    """The checkpoint of this step, or the one that was written last."""
    if not folder.is_dir():
        raise FileError("there is no such folder of checkpoints", where=str(folder), hint="Check the path.")
    found = find_checkpoints(folder)
    if not found:
        raise FileError(
            "there is no complete checkpoint in this folder",
            where=str(folder),
            hint="Name the folder that pipe.save was given.",
        )
    wanted = [item for item in found if step is None or item.record.step == step]
    if not wanted:
        there = ", ".join(str(number) for number in sorted({item.record.step for item in found}))
        raise InputError(f"there is no checkpoint of step {step}", where=str(folder), hint=f"There are: {there}.")
    return wanted[-1]


def read_record(path: Path) -> Record:
    """What a complete checkpoint says of itself."""
    where = path / RECORD
    if not where.is_file():
        raise FileError(
            "this is named as a checkpoint but is none, or not all of one",
            where=str(path),
            hint="Move it out of the folder of checkpoints.",
        )
    return decode_json(read_bytes(where), Record, where=str(where), expected_format=FORMAT)


class Lock(enum.Enum):
    """Whether a folder is ours to tidy."""

    HELD = "held"
    TAKEN = "another process has it"
    NONE = "this folder cannot be locked"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Hold the folder's lock, if nobody else does. It goes with the process."""
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        yield Lock.NONE
        return
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> Lock:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.TAKEN
    except OSError:
        return Lock.NONE
    return Lock.HELD


def begin(folder: Path, step: int) -> Path:
    """A new hidden folder to write into."""
    unfinished = folder / f".step-{step:08}.{secrets.token_hex(4)}.part"
    try:
        unfinished.mkdir()
    except OSError as error:
        raise FileError(f"no checkpoint can be written here: {reason(error)}", where=str(folder)) from None
    return unfinished


def next_number(folder: Path) -> int:
    """The number of the next checkpoint."""
    return 1 + max((item.record.number for item in find_checkpoints(folder)), default=0)


def finish(unfinished: Path, record: Record, keep: int | None) -> Path:
    """Everything is written: give it its name, and remove all but the last `keep`."""
    folder = unfinished.parent
    write_whole(unfinished / RECORD, encode_json(record))
    _flush(unfinished)
    path = folder / f"step-{record.step:08}"
    again = 2
    while path.exists():
        path, again = folder / f"step-{record.step:08}-{again}", again + 1
    unfinished.rename(path)
    _flush(folder)
    found = find_checkpoints(folder)
    # A step that was saved again is there once.
    doubled = [item for item in found[:-1] if item.record.step == record.step]
    others = [item for item in found if item not in doubled]
    surplus = [] if keep is None else others[: max(0, len(others) - keep)]
    for item in (*doubled, *surplus):
        hidden = folder / f".{item.path.name}.{secrets.token_hex(4)}.part"
        item.path.rename(hidden)
        remove([hidden])
    return path


def unfinished_in(folder: Path) -> list[Path]:
    """What writers have left behind; to be removed only by who has the lock."""
    return _named(folder, _UNFINISHED)


def remove(paths: Sequence[Path]) -> None:
    """Remove folders as well as it goes."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name) and path.is_dir())
    except OSError as error:
        raise FileError(f"cannot be read: {reason(error)}", where=str(folder)) from None


def _flush(folder: Path) -> None:
    """What is in a folder, and under which names, survives that the machine stops."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
