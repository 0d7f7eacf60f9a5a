"""The directory of a run: removed when the run ends. The next run removes directories of runs that were killed."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "lock"
ABANDONED_S = 3600.0
"""A directory of this age without a lock is abandoned: a run creates its lock within a moment."""


MEMORY = Path("/dev/shm")  # noqa: S108 - the directory in memory of Linux
"""Files here are in the memory of the host."""


@contextmanager
def run_dir(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Create a temporary directory that only this user can open. It is locked as long as this process lives.

    Args:
        prefix: The begin of its name.
        parent: Where to create it. None: in the directory for temporary files.
    """
    _remove_abandoned(prefix, parent)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as name,
            _locked(Path(name)),
        ):
            yield Path(name)
    finally:
        _remove_empty_cache()


@contextmanager
def memory_dir(prefix: str) -> Iterator[Path]:
    """Create a directory like `run_dir`, in memory where the system has one for files in memory."""
    with run_dir(prefix, MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield folder


def stderr_path(folder: Path, name: int | str) -> Path:
    """The file of a process's standard error."""
    return folder / f"{name}.stderr"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    unlocked = folder / f"{LOCK}.new"
    with unlocked.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Renamed only now: a file of this name without a lock belongs to a run that has ended.
        unlocked.rename(folder / LOCK)
        yield


def _remove_abandoned(prefix: str, parent: Path | None) -> None:
    """Remove directories of this user whose run has ended."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        # Directories of other users, and those that another process removes at the same time.
        with suppress(OSError):
            status = folder.lstat()
            if (
                stat.S_ISDIR(status.st_mode)
                and status.st_uid == os.geteuid()
                and _is_abandoned(folder, status.st_mtime)
            ):
                shutil.rmtree(folder, ignore_errors=True)


def _remove_empty_cache() -> None:
    """Remove torch's cache directory if it is empty: every rank that makes an optimizer creates it."""
    for folder in Path(tempfile.gettempdir()).glob("torchinductor_*"):
        with suppress(OSError):  # not empty, or that of another user
            folder.rmdir()


def _is_abandoned(folder: Path, changed_s: float) -> bool:
    """Whether the run of a directory that was last changed at `changed_s` has ended."""
    try:
        with (folder / LOCK).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - changed_s > ABANDONED_S
    except BlockingIOError:
        return False
    return True
