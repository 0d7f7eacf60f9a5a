"""Reading and writing files: clear errors when reading, whole or not at all when writing."""

import contextlib
import hashlib
import os
import shlex
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.errors import FileError, InputError

T = TypeVar("T", bound=msgspec.Struct)

MAX_INPUT_BYTES = 1 << 30


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file, or a `FileError` that says why not."""
    path = Path(path)
    try:
        if path.is_dir():
            raise FileError("this is a folder, not a file", where=str(path), hint="Name a file.")
        size = path.stat().st_size
        if size > MAX_INPUT_BYTES:
            raise FileError(f"the file has {size:,} bytes; at most {MAX_INPUT_BYTES:,} are read", where=str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise FileError("no such file", where=str(path), hint="Check the path.") from None
    except (OSError, ValueError) as error:
        raise FileError(f"cannot be read: {reason(error)}", where=repr(str(path))) from None


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, or a `FileError` that says why not."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"{path}:{line_and_column(data, error.start)}"
        raise InputError("this is not UTF-8 text", where=where, hint="Is it the right file?") from None


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    write_all({str(path): data})


def write_all(contents: Mapping[str, bytes]) -> None:
    """Write several files, all of them or none: into temporary neighbours first, then over the old ones.

    A link is followed. What is there but is no regular file (a device, a pipe) is written to as it is, last of all.
    """
    staged: dict[Path, Path] = {}
    streams: dict[Path, bytes] = {}
    path = Path()
    try:
        for name, data in contents.items():
            path = Path(name)
            target = path.resolve()
            if target.is_dir():
                raise FileError("cannot be written: this is a folder", where=name, hint="Name a file.")
            check_folder(name)
            if target.exists() and not target.is_file():
                streams[target] = data
            else:
                staged[target] = _stage(target, data)
        for target, temporary in staged.items():
            path = target
            temporary.replace(target)
        for target, data in streams.items():
            path = target
            with target.open("wb") as file:
                file.write(data)
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot be written: {reason(error)}", where=_shown(path)) from None
    finally:
        for temporary in staged.values():
            with contextlib.suppress(OSError):
                temporary.unlink()


def check_folder(path: str | Path) -> None:
    """A file can only be written into a folder that is there."""
    folder = Path(path).parent
    try:
        is_there = folder.exists()
    except OSError:
        return  # who writes it will say why not
    if not is_there:
        hint = f"Make it first: mkdir -p {shlex.quote(str(folder))}; or name another file."
        raise FileError(f"cannot be written: there is no folder {str(folder)!r}", where=_shown(Path(path)), hint=hint)


def _stage(target: Path, data: bytes) -> Path:
    """The data in a temporary neighbour of the target."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)


def decode_json(data: bytes, kind: type[T], *, where: str, expected_format: str) -> T:
    """A value of `kind` from JSON; unknown keys, wrong types and other format versions are errors.

    `expected_format` is what the file's key "format" must say, such as "penstock.plan/2".
    """
    try:
        probe = msgspec.json.decode(data, type=_Format)
    except msgspec.ValidationError:
        probe = _Format()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"broken JSON: {_plain(error, data)}", where=where, hint="Mend or remake the file.") from None
    if probe.format != expected_format:
        found = f"it says {probe.format!r}" if probe.format else "it has no such key"
        hint = _format_hint(probe.format, expected_format)
        raise InputError(f'the key "format" must be {expected_format!r}; {found}', where=where, hint=hint)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        at = f"{where}, at {path.strip('`')}" if path else where
        raise InputError(what, where=at, hint="docs/formats.md describes every key.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"broken JSON: {_plain(error, data)}", where=where, hint="Mend or remake the file.") from None


def encode_json(value: msgspec.Struct) -> bytes:
    """The value as JSON that people can read, with a line end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def digest(value: msgspec.Struct, *, without: Collection[str] = ()) -> str:
    """A short name for the contents of a value: equal values have equal digests, on every machine.

    Fields may be left out: one that came later and is empty must not give old files another name.
    """
    fields = msgspec.to_builtins(value)
    named = {name: item for name, item in fields.items() if name not in without}
    return "sha256:" + hashlib.sha256(msgspec.json.encode(named)).hexdigest()[:32]


def line_and_column(data: bytes, offset: int) -> str:
    """`line:column` (from 1) of a byte offset."""
    before = data[:offset]
    line_start = before.rfind(b"\n") + 1
    return f"{before.count(bytes([10])) + 1}:{offset - line_start + 1}"


def reason(error: Exception) -> str:
    """The reason of an error of the operating system, without its number and path."""
    return getattr(error, "strerror", None) or str(error)


class _Format(msgspec.Struct):
    format: str = ""


COMMANDS = {
    "profile": "penstock profile -o FILE",
    "plan": "penstock plan -o FILE",
    "program": "penstock plan --program FILE",
    "timeline": "penstock simulate -o FILE",
}
"""How each kind of file is written."""


def _format_hint(found: str, expected: str) -> str:
    name, _, _ = expected.partition("/")
    if found.startswith(name + "/"):
        command = COMMANDS.get(name.removeprefix("penstock."), "")
        again = f": make it again with `{command}`" if command else ": make it again"
        return f"The file was written by another version of Penstock{again}."
    if found.startswith("penstock."):
        return f"This is a {found.removeprefix('penstock.').partition('/')[0]} file."
    return f"Is it a {name.removeprefix('penstock.')} file?"


def _plain(error: Exception, data: bytes) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error)
    head, separator, tail = text.rpartition("(byte ")
    if separator and tail.rstrip(")").isdigit():
        place = line_and_column(data, int(tail.rstrip(")")))
        return f"{head.strip().removeprefix('JSON is malformed: ')} at line {place.replace(':', ', column ')}"
    return text


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
