"""A directory of checkpoints: complete ones under their names, unfinished ones under hidden names.

    step-00000030/            complete: renamed after everything in it was flushed to disk
    step-00000030-2/          the same step, saved once more
    .step-00000040.1f3a.part/ being written, being removed, or left behind by a writer that was killed
    .lock                     held by a writer as long as its process lives

The holder of the lock may remove unfinished checkpoints, because their writers have exited.
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
    """The metadata file of a checkpoint."""

    format: str = FORMAT
    step: int
    """Number of the next step, counted from 0: the number of completed steps."""
    number: int
    """Numbers the checkpoints of a directory in the order of writing."""
    seed: int
    """Seed of the pipeline's random numbers."""
    optimizers: tuple[str, ...] = ()
    """Classes of the optimizers."""
    world: int
    """Number of ranks that wrote the checkpoint."""


class Complete(msgspec.Struct, frozen=True):
    """A complete checkpoint."""

    path: Path
    record: Record


def find_checkpoints(folder: Path) -> list[Complete]:
    """The complete checkpoints of a directory, in the order of writing."""
    checkpoints = [Complete(path, read_record(path)) for path in _named(folder, _COMPLETE)]
    return sorted(checkpoints, key=lambda item: (item.record.number, item.path.name))


def choose(folder: Path, step: int | None) -> Complete:
    """Choose the last checkpoint of a step, or of all steps if `step` is None.

    Raises:
        FileError: There is no such directory, or it has no complete checkpoint.
        InputError: There is no checkpoint of this step.
    """
    if not folder.is_dir():
        raise FileError("no such checkpoint directory", where=str(folder), hint="Check the path.")
    checkpoints = find_checkpoints(folder)
    if not checkpoints:
        raise FileError(
            "the directory has no complete checkpoint",
            where=str(folder),
            hint="Pass the directory that was passed to pipe.save.",
        )
    matching = [item for item in checkpoints if step is None or item.record.step == step]
    if not matching:
        steps = ", ".join(str(number) for number in sorted({item.record.step for item in checkpoints}))
        raise InputError(f"no checkpoint of step {step}", where=str(folder), hint=f"Available steps: {steps}.")
    return matching[-1]


def read_record(path: Path) -> Record:
    """Read the metadata of a complete checkpoint."""
    where = path / RECORD
    if not where.is_file():
        raise FileError(
            f"the directory has the name of a checkpoint, but no {RECORD}",
            where=str(path),
            hint="Move it out of the checkpoint directory.",
        )
    return decode_json(read_bytes(where), Record, where=str(where), expected_format=FORMAT)


class Lock(enum.Enum):
    """Whether this process may remove unfinished checkpoints."""

    HELD = "held"
    TAKEN = "held by another process"
    NONE = "the directory cannot be locked"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Lock]:
    """Try to hold the lock of a directory. It is released on exit, or when the process ends."""
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
    """Create a hidden directory for an unfinished checkpoint."""
    unfinished = folder / f".step-{step:08}.{secrets.token_hex(4)}.part"
    try:
        unfinished.mkdir()
    except OSError as error:
        raise FileError(f"cannot write checkpoints: {reason(error)}", where=str(folder)) from None
    return unfinished


def next_number(folder: Path) -> int:
    """Number of the next checkpoint."""
    return 1 + max((item.record.number for item in find_checkpoints(folder)), default=0)


def finish(unfinished: Path, record: Record, keep: int | None) -> Path:
    """Give a checkpoint its final name, and remove all but the last `keep` checkpoints.

    All other files of the checkpoint must be written already.
    """
    folder = unfinished.parent
    write_whole(unfinished / RECORD, encode_json(record))
    flush(unfinished)
    path = folder / f"step-{record.step:08}"
    count = 2
    while path.exists():
        path, count = folder / f"step-{record.step:08}-{count}", count + 1
    unfinished.rename(path)
    flush(folder)
    checkpoints = find_checkpoints(folder)
    # Keep only the last checkpoint of a step.
    replaced = [item for item in checkpoints[:-1] if item.record.step == record.step]
    others = [item for item in checkpoints if item not in replaced]
    surplus = [] if keep is None else others[: max(0, len(others) - keep)]
    for item in (*replaced, *surplus):
        hidden = folder / f".{item.path.name}.{secrets.token_hex(4)}.part"
        item.path.rename(hidden)
        remove([hidden])
    return path


def unfinished_in(folder: Path) -> list[Path]:
    """The unfinished checkpoints of a directory. Only the holder of the lock may remove them."""
    return _named(folder, _UNFINISHED)


def remove(paths: Sequence[Path]) -> None:
    """Remove directories. Errors are ignored."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _named(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name) and path.is_dir())
    except OSError as error:
        raise FileError(f"cannot be read: {reason(error)}", where=str(folder)) from None


def flush(path: Path) -> None:
    """Flush a file or a directory to disk, so that its contents survive a crash of the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
