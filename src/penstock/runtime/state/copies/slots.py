"""Memory for one copy: a file in the memory of the host, which outlives the process that writes it.

    64 bytes     magic, step, length and digest of the contents, and a mark that says that they are complete
    contents     (`payload.py`)

The mark is cleared before the contents change and set after the last of them, so a copy is complete or does not count.
A part of the state has two slots in turn: while one is written, the other has the state before.
"""

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.errors import FileError
from penstock.io import reason
from penstock.units import show_bytes

HEADER = struct.Struct("<8sqqq")
MARK = struct.Struct("<Q")
HEADER_BYTES = 64
MAGIC = b"PSTKCOPY"
PAGE = 4096
BLOCK_WORDS = 8192


def digest_of(view: memoryview) -> int:
    """A digest at the speed of memory: the CRC of sums of 64 KiB blocks. Every change of a single word changes it.

    Args:
        view: The contents, in bytes.
    """
    words = np.frombuffer(view, dtype=np.uint64, count=len(view) // 8)
    num_blocks = len(words) // BLOCK_WORDS
    whole = words[: num_blocks * BLOCK_WORDS].reshape(num_blocks, BLOCK_WORDS)
    crc = zlib.crc32(whole.sum(axis=1, dtype=np.uint64).tobytes())
    crc = zlib.crc32(words[num_blocks * BLOCK_WORDS :].tobytes(), crc)
    return zlib.crc32(view[len(words) * 8 :], crc)


class Committed(NamedTuple):
    """A complete copy."""

    step: int
    contents: memoryview


class Slot:
    """A slot that this process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory: mmap.mmap | None = None
        self._step = -1

    def reserve(self, num_bytes: int, step: int) -> memoryview:
        """Clear the mark, and return the memory for the contents.

        Args:
            num_bytes: Their size.
            step: The step that they belong to.
        """
        size = -(-(HEADER_BYTES + num_bytes) // PAGE) * PAGE
        if self._memory is None or len(self._memory) < size:
            self._memory = _map(self._path, size)
        self._step = step
        self._memory[:HEADER_BYTES] = bytes(HEADER_BYTES)
        return memoryview(self._memory)[HEADER_BYTES : HEADER_BYTES + num_bytes]

    def commit(self, num_bytes: int, digest: int | None = None) -> bool:
        """Mark the contents as complete.

        Args:
            num_bytes: Their size.
            digest: The digest that they must have, if they were received. If it differs, nothing is marked.

        Returns:
            Whether they are complete.
        """
        assert self._memory is not None, "reserve comes first"
        own = digest_of(memoryview(self._memory)[HEADER_BYTES : HEADER_BYTES + num_bytes])
        if digest not in (None, own):
            return False
        header = HEADER.pack(MAGIC, self._step, num_bytes, own)
        self._memory[: HEADER.size] = header
        self._memory[HEADER.size : HEADER.size + MARK.size] = MARK.pack(zlib.crc32(header) | 1 << 32)
        return True

    def head(self) -> tuple[int, int, int]:
        """Step, size and digest of the committed contents."""
        assert self._memory is not None, "reserve comes first"
        _, step, num_bytes, digest = HEADER.unpack(self._memory[: HEADER.size])
        return step, num_bytes, digest

    def contents(self, num_bytes: int) -> memoryview:
        """The memory of the contents."""
        assert self._memory is not None, "reserve comes first"
        return memoryview(self._memory)[HEADER_BYTES : HEADER_BYTES + num_bytes]


def _map(path: Path, size: int) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Reserved now: a write into memory that is not there would end the process by SIGBUS.
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            raise FileError(
                f"no memory for a copy of the state ({show_bytes(size)}): {reason(error)}",
                where=str(path.parent),
                hint="Make the file system in memory larger, or train without --elastic.",
            ) from None
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def read_slot(path: Path, *, verify: bool = True) -> Committed | None:
    """Read a slot. None if it has no complete copy, or one that is damaged.

    Args:
        path: Its file.
        verify: Whether to compare the contents with their digest.
    """
    try:
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):
        return None
    if len(memory) < HEADER_BYTES:
        return None
    header = memory[: HEADER.size]
    magic, step, num_bytes, digest = HEADER.unpack(header)
    (mark,) = MARK.unpack(memory[HEADER.size : HEADER.size + MARK.size])
    if magic != MAGIC or mark != zlib.crc32(header) | 1 << 32 or num_bytes > len(memory) - HEADER_BYTES:
        return None
    contents = memoryview(memory)[HEADER_BYTES : HEADER_BYTES + num_bytes]
    return Committed(step, contents) if not verify or digest_of(contents) == digest else None
