"""Digests of a checkpoint's files: computed while a file is written, compared before anything is loaded from it."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.io import reason

CHUNK_BYTES = 4 << 20


class FileDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and contents of a file, as they were written."""

    num_bytes: int
    sha256: str


class DigestingStream(io.RawIOBase):
    """A file that is written from begin to end, and the digest of what was written.

    It keeps the first error of the operating system, because torch's writer replaces it with one of its own.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._hash = hashlib.sha256()
        self._num_bytes = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of the data."""
        view = memoryview(data).cast("B")
        try:
            self._file.write(view)
        except OSError as error:
            self.error = self.error or error
            raise
        self._hash.update(view)
        self._num_bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._num_bytes

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        if self._file.closed:
            return
        try:
            self._file.flush()
        except OSError as error:
            self.error = self.error or error
            raise

    def fileno(self) -> int:
        """Return the descriptor of the file. What was written is handed to the operating system first."""
        self.flush()
        return int(self._file.fileno())

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def digest(self) -> FileDigest:
        """The digest of what was written so far."""
        return FileDigest(self._num_bytes, self._hash.hexdigest())


def find_damage(folder: Path, expected: Mapping[str, FileDigest]) -> str:
    """Compare files with their digests.

    Args:
        folder: The folder of the files.
        expected: The digest of each file, by name.

    Returns:
        What is wrong with the first damaged file; empty if none is.
    """
    for name, digest in expected.items():
        try:
            wrong = _difference(folder / name, digest)
        except FileNotFoundError:
            wrong = "is missing"
        except OSError as error:
            wrong = f"cannot be read: {reason(error)}"
        if wrong:
            return f"{name} {wrong}"
    return ""


def _difference(path: Path, expected: FileDigest) -> str:
    """Read a file in chunks, and describe how it differs from what was written."""
    with path.open("rb", buffering=0) as file:
        num_bytes = path.stat().st_size
        if num_bytes != expected.num_bytes:
            return f"has {num_bytes:,} bytes; {expected.num_bytes:,} were written"
        contents = hashlib.sha256()
        buffer = memoryview(bytearray(min(CHUNK_BYTES, num_bytes) or 1))
        while count := file.readinto(buffer):
            contents.update(buffer[:count])
    return "" if contents.hexdigest() == expected.sha256 else "does not have the contents that were written"
