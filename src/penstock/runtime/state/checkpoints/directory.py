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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from penstock.errors import FileError, InputError, PenstockError
from penstock.io import flush_to_disk, reason
from penstock.runtime.state.checkpoints.record import Record, read_record, write_record

_COMPLETE = re.compile(r"step-(\d{8,})(-\d+)?")
_UNFINISHED = re.compile(r"\.step-\d{8,}(-\d+)?\.[0-9a-f]+\.part")


class Complete(msgspec.Struct, frozen=True):
    """A complete checkpoint."""

    path: Path
    record: Record


class Broken(msgspec.Struct, frozen=True):
    """A directory with the name of a checkpoint that cannot be loaded."""

    path: Path
    error: PenstockError


def find_checkpoints(folder: Path) -> list[Complete]:
    """The complete checkpoints of a directory, in the order of writing. Broken ones are left out."""
    return survey(folder)[0]


def has_checkpoints(folder: Path) -> bool:
    """Whether a directory has checkpoints, complete or broken."""
    return folder.is_dir() and bool(_named(folder, _COMPLETE))


def survey(folder: Path) -> tuple[list[Complete], list[Broken]]:
    """The complete checkpoints of a directory, in the order of writing, and those whose metadata cannot be read."""
    complete, broken = [], []
    for path in _named(folder, _COMPLETE):
        try:
            complete.append(Complete(path, read_record(path)))
        except PenstockError as error:
            broken.append(Broken(path, error))
    return sorted(complete, key=lambda item: (item.record.number, item.path.name)), broken


def choose(
    folder: Path, step: int | None, damaged: Mapping[str, str] = MappingProxyType({})
) -> tuple[Complete, tuple[str, ...]]:
    """Choose the last checkpoint of a step, or of all steps if `step` is None.

    Args:
        folder: The checkpoint directory.
        step: A step, or None.
        damaged: Checkpoints to pass over: what is wrong with each, by name.

    Returns:
        The checkpoint, and what is wrong with those that were passed over.

    Raises:
        FileError: There is no such directory, or it has no checkpoint that can be loaded.
        InputError: There is no checkpoint of this step.
    """
    if not folder.is_dir():
        raise FileError("no such checkpoint directory", where=str(folder), hint="Check the path.")
    complete, broken = survey(folder)
    if not complete and not broken:
        raise FileError(
            "the directory has no complete checkpoint",
            where=str(folder),
            hint="Pass the directory that was passed to pipe.save.",
        )
    errors: list[PenstockError] = []
    usable = []
    for item in reversed(complete):
        if item.path.name not in damaged:
            usable.append(item)
        elif step is None or item.record.step == step:
            what = f"the checkpoint is damaged: {damaged[item.path.name]}"
            errors.append(FileError(what, where=str(item.path)))
    errors += [item.error for item in reversed(broken) if step is None or _step_of(item.path) == step]
    steps = ", ".join(str(number) for number in sorted({item.record.step for item in usable}))
    for item in usable:
        if step is None or item.record.step == step:
            return item, tuple(f"{error.where}: {error.what}" for error in errors)
    if not errors:
        raise InputError(f"no checkpoint of step {step}", where=str(folder), hint=f"Available steps: {steps}.")
    hint = f"Available steps: {steps}." if steps else errors[0].hint
    raise FileError(errors[0].what, where=errors[0].where, hint=hint or "The directory has no other checkpoint.")


def _step_of(path: Path) -> int:
    match = _COMPLETE.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


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
    write_record(unfinished, record)
    path = folder / f"step-{record.step:08}"
    count = 2
    while path.exists():
        path, count = folder / f"step-{record.step:08}-{count}", count + 1
    try:
        flush_to_disk(unfinished)
        unfinished.rename(path)
        flush_to_disk(folder)
    except OSError as error:
        raise FileError(f"cannot write checkpoints: {reason(error)}", where=str(folder)) from None
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
