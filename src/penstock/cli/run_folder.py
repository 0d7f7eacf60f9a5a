"""The folder of a run: gone when the run ends, and when it was killed, swept away by the next one."""

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LOCK = "lock"
YOUNG_S = 60.0
"""A folder that is not as old as this may be about to be locked."""


@contextmanager
def run_folder(prefix: str) -> Iterator[Path]:
    """A fresh folder for temporary files. It is locked as long as this process lives, however that ends."""
    _sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(prefix: str) -> None:
    """Remove folders of this user whose run has gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # Those of other users, and those that another process sweeps at the same time.
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < YOUNG_S:
                continue
            with (folder / LOCK).open("r+b") as file:
                if _is_free(file):
                    shutil.rmtree(folder, ignore_errors=True)


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
