"""The folder of a run: gone when the run ends, and when it was killed, swept away by the next one."""

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
FORGOTTEN_S = 3600.0
"""A folder of this age without a lock is nobody's: a run makes its own within a moment."""


@contextmanager
def run_folder(prefix: str) -> Iterator[Path]:
    """A fresh folder for temporary files. It is locked as long as this process lives, however that ends."""
    _sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    unnamed = folder / f"{LOCK}.new"
    with unnamed.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Only now, so that a lock by this name that is free is that of a run that has gone.
        unnamed.rename(folder / LOCK)
        yield


def _sweep(prefix: str) -> None:
    """Remove folders of this user whose run has gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # Those of other users, and those that another process sweeps at the same time.
        with suppress(OSError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and _has_gone(folder, found.st_mtime):
                shutil.rmtree(folder, ignore_errors=True)


def _has_gone(folder: Path, changed_s: float) -> bool:
    """Whether the run of a folder is over, which was changed at that time."""
    try:
        with (folder / LOCK).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - changed_s > FORGOTTEN_S
    except BlockingIOError:
        return False
    return True
