"""A key-value store in a directory: one small file per key, for ranks of one host and one user.

`torch.distributed.FileStore` appends every write to one file, so it cannot hold values that change twice a second for
weeks. Here a write replaces the file of its key.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

POLL_S = 0.01


class DirectoryStore:
    """The part of `torch.distributed.Store` that the heartbeat uses.

    Every call raises `RuntimeError` if the directory no longer exists, as torch's stores do without their server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._timeout = timedelta(seconds=300)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long `get` waits for a missing key."""
        self._timeout = timeout

    def set(self, key: str, value: str) -> None:
        """Write a value; readers see the old one or the new one, never a part."""
        new = self._write_new(value)
        new.replace(self._path(key))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write `desired` if the key has no value yet, and return the value that the key has then."""
        if expected:
            raise NotImplementedError("only missing keys can be compared and set")
        new = self._write_new(desired)
        with suppress(FileExistsError):
            os.link(new, self._path(key))
        new.unlink()
        return self.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        if not self._folder.is_dir():
            raise RuntimeError(f"{self._folder} no longer exists")
        return all(self._path(key).exists() for key in keys)

    def get(self, key: str) -> bytes:
        """Return the value of a key; wait for it if it is missing."""
        end_s = time.monotonic() + self._timeout.total_seconds()
        while True:
            with suppress(FileNotFoundError):
                return self._path(key).read_bytes()
            if time.monotonic() > end_s:
                raise RuntimeError(f"timed out after {self._timeout.total_seconds():g} s waiting for key {key!r}")
            time.sleep(POLL_S)

    def _path(self, key: str) -> Path:
        return self._folder / quote(key, safe="")

    def _write_new(self, value: str) -> Path:
        path = self._folder / f".{uuid4().hex}"
        try:
            path.write_text(value)
        except OSError as error:
            raise RuntimeError(f"cannot write to {self._folder}: {error.strerror}") from error
        return path
