"""The slice file: the slices of a lowered program, of which a rank reads its own.

The first line is a JSON header: the digests of the plan, of the whole program and of each slice, and where each slice
is. The slices follow, each as arrays compressed with zlib. A rank reads the header and one slice, and checks that the
slice has the digest of the header, and that the digests of all slices make up that of the program.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from penstock import io
from penstock.arrays import Int32s
from penstock.errors import FileError, InputError
from penstock.program.actions import NONE, Kind
from penstock.program.slices.program_slice import (
    NO_ACTIONS,
    ProgramSlice,
    SliceArrays,
    digest_program,
    digest_slice,
    find_links,
    slice_arrays,
)
from penstock.program.types import Program

FORMAT = "penstock.slices/1"
_ACTION_BYTES, _REMOTE_BYTES = 13, 12
_MAX_HEADER_BYTES = 1 << 26
_HINT = "Write the file again with penstock.save_slices."

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The slice of one device in the file."""

    device: str
    digest: str
    num_actions: Count
    num_remote_splits: Count
    num_bytes: Count
    """Its compressed size."""


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str = FORMAT
    plan: str
    program: str
    links: tuple[tuple[Count, Count, Count], ...]
    slices: tuple[_Entry, ...]


@dataclass(frozen=True)
class PackedSlices:
    """The slices of a program as bytes: the header, and by device the compressed slices."""

    header: bytes
    slices: tuple[bytes, ...]


def pack_slices(program: Program) -> PackedSlices:
    """Return the slices of a lowered program as bytes."""
    parts, links = slice_arrays(program), find_links(program)
    contents = [zlib.compress(part.encode(), 1) for part in parts]
    digests = [digest_slice(part) for part in parts]
    entries = (
        _Entry(name, digest, len(part.kind), len(part.remote_split), len(packed))
        for name, digest, part, packed in zip(program.devices, digests, parts, contents, strict=True)
    )
    header = _Header(
        plan=program.plan.digest,
        program=digest_program(program.plan.digest, program.devices, digests, links),
        links=tuple((kind, sender, target) for kind, sender, target in links.tolist()),
        slices=tuple(entries),
    )
    return PackedSlices(msgspec.json.encode(header) + b"\n", tuple(contents))


def save_slices(program: Program, path: str | Path) -> None:
    """Write the slices of a lowered program to a file, atomically.

    A rank then loads its own slice (`Pipeline(..., slices=path)`) instead of lowering and proving the whole program.

    Args:
        program: A lowered program, as `penstock.evaluate(...).program`. It must have passed the proof.
        path: The file; it is replaced if it exists.
    """
    packed = pack_slices(program)
    io.write_whole(path, b"".join([packed.header, *packed.slices]))


def load_slice(path: str | Path, device: str | None) -> ProgramSlice:
    """Read the slice of one device from a slice file.

    Args:
        path: The file.
        device: The name of the device; None for a rank that runs no device.

    Raises:
        FileError: The file cannot be read.
        InputError: The file is not a slice file, is damaged, or has no slice for the device.
    """
    where = str(path)
    try:
        with Path(path).open("rb") as file:
            line = file.readline(_MAX_HEADER_BYTES)
            header = _read_header(line, where)
            number = _find(header, device, where)
            contents = b""
            if number != NONE:
                file.seek(len(line) + sum(entry.num_bytes for entry in header.slices[:number]))
                contents = file.read(header.slices[number].num_bytes)
    except FileNotFoundError:
        raise FileError("no such file", where=where, hint="Check the path.") from None
    except (OSError, ValueError) as error:
        raise FileError(f"cannot be read: {io.reason(error)}", where=where) from None
    return _make_slice(header, number, contents, where)


def unpack_slice(header: bytes, contents: bytes, device: str | None, *, where: str) -> ProgramSlice:
    """Return a slice from the bytes of `PackedSlices`.

    Args:
        header: The header.
        contents: The compressed slice of the device; ignored without a device.
        device: The name of the device; None for a rank that runs no device.
        where: The source of the bytes, for errors.

    Raises:
        InputError: The bytes are damaged, or the header has no slice for the device.
    """
    read = _read_header(header, where)
    return _make_slice(read, _find(read, device, where), contents, where)


def _read_header(line: bytes, where: str) -> _Header:
    header = io.decode_json(line, _Header, where=where, expected_format=FORMAT)
    names = [entry.device for entry in header.slices]
    digests = [entry.digest for entry in header.slices]
    if header.program != digest_program(header.plan, names, digests, _links(header)):
        raise InputError("the header is damaged: its digest differs from its contents", where=where, hint=_HINT)
    return header


def _find(header: _Header, device: str | None, where: str) -> int:
    if device is None:
        return NONE
    number = next((number for number, entry in enumerate(header.slices) if entry.device == device), NONE)
    if number == NONE:
        raise InputError(f"there is no slice for device {device!r}", where=where, hint=_HINT)
    return number


def _make_slice(header: _Header, number: int, contents: bytes, where: str) -> ProgramSlice:
    arrays = NO_ACTIONS
    if number != NONE:
        entry = header.slices[number]
        try:
            arrays = _decode(contents, entry)
            if digest_slice(arrays) != entry.digest:
                raise ValueError("its digest differs from that in the header")
        except (ValueError, zlib.error) as error:
            what = f"the slice of device {entry.device!r} is damaged: {error}"
            raise InputError(what, where=where, hint=_HINT) from None
    return ProgramSlice(
        plan=header.plan,
        program=header.program,
        devices=tuple(entry.device for entry in header.slices),
        device=number,
        arrays=arrays,
        links=_links(header),
    )


def _links(header: _Header) -> Int32s:
    return np.array(header.links, dtype=np.int32).reshape(-1, 3)


def _decode(contents: bytes, entry: _Entry) -> SliceArrays:
    num, num_remote = entry.num_actions, entry.num_remote_splits
    size = num * _ACTION_BYTES + num_remote * _REMOTE_BYTES
    reader = zlib.decompressobj()
    data = reader.decompress(contents, size + 1)
    if len(data) != size or not reader.eof:
        raise ValueError("it is too long or truncated")
    kind = np.frombuffer(data, "<i1", num)
    if not ((kind >= 0) & (kind < len(Kind))).all():
        raise ValueError("it has an unknown kind of action")
    stage, microbatch, peer = (np.frombuffer(data, "<i4", num, num * (1 + 4 * column)) for column in range(3))
    remote = np.frombuffer(data, "<i4", 3 * num_remote, num * _ACTION_BYTES).reshape(-1, 3)
    return SliceArrays(kind, stage, microbatch, peer, remote)
