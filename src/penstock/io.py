"""File input and output: reads with located errors, atomic writes, JSON with format versions, digests."""

import contextlib
import hashlib
import os
import secrets
import shlex
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.errors import FileError, InputError
from penstock.names import ask_names, suggest_files

T = TypeVar("T", bound=msgspec.Struct)

MAX_INPUT_BYTES = 1 << 30
_NO_NAME: int = getattr(os, "O_TMPFILE", os.O_DIRECTORY)
"""Opens a file without a name in a folder. Without O_TMPFILE, opening a folder to write fails."""


def read_bytes(path: str | Path) -> bytes:
    """Read a file.

    Raises:
        FileError: The file is missing, is a folder, a device or a pipe, is larger than `MAX_INPUT_BYTES`, or cannot be
            read.
    """
    path = Path(path)
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _check_regular(os.fstat(handle), path)
        except FileError:
            os.close(handle)
            raise
        with os.fdopen(handle, "rb") as file:
            return file.read()
    except FileNotFoundError:
        hint = ask_names(suggest_files(path)) or "Check the path."
        raise FileError("no such file", where=str(path), hint=hint) from None
    except (OSError, ValueError) as error:
        raise FileError(f"cannot be read: {reason(error)}", where=repr(str(path))) from None


def _check_regular(status: os.stat_result, path: Path) -> None:
    """Refuse what has no end, or too much, before memory is taken. Devices, such as /dev/zero, can be read for ever."""
    if stat.S_ISDIR(status.st_mode):
        raise FileError("is a folder, not a file", where=str(path), hint="Name a file.")
    if not stat.S_ISREG(status.st_mode):
        what = "is a device or a pipe, not a file"
        raise FileError(what, where=str(path), hint="Write its contents to a file first, and name that.")
    if status.st_size > MAX_INPUT_BYTES:
        what = f"file size ({status.st_size:,} bytes) exceeds the limit of {MAX_INPUT_BYTES:,}"
        raise FileError(what, where=str(path))


def read_text(path: str | Path) -> str:
    """Read a UTF-8 text file.

    Raises:
        FileError: As `read_bytes`.
        InputError: The file is not UTF-8; the error names line and column.
    """
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"{path}:{line_and_column(data, error.start)}"
        raise InputError("this is not UTF-8 text", where=where, hint="Check that this is the right file.") from None


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file atomically: after a failure the old contents are unchanged."""
    write_all({str(path): data})


def write_all(contents: Mapping[str, bytes]) -> None:
    """Write several files, all or none: first to temporary files in the same folders, then over the old ones.

    Symbolic links are followed. Targets that are not regular files (devices, pipes) are written directly, after all
    others.

    Args:
        contents: The bytes of each file, by path.

    Raises:
        FileError: A file cannot be written.
    """
    staged: dict[Path, Path] = {}
    streams: dict[Path, bytes] = {}
    path = Path()
    try:
        for name, data in contents.items():
            path = Path(name)
            target = path.resolve()
            if target.is_dir():
                raise FileError("cannot be written: it is a folder", where=name, hint="Name a file.")
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
        raise FileError(f"cannot be written: {reason(error)}", where=_printable(path)) from None
    finally:
        for temporary in staged.values():
            with contextlib.suppress(OSError):
                temporary.unlink()


def flush_to_disk(path: Path) -> None:
    """Flush a file or a directory to disk, so that its contents survive a crash of the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_folder(path: str | Path) -> None:
    """Check that the folder of an output file exists.

    Raises:
        FileError: It does not exist.
    """
    folder = Path(path).parent
    try:
        exists = folder.exists()
    except OSError:
        return  # writing the file reports the reason
    if not exists:
        hint = f"Create it first: mkdir -p {shlex.quote(str(folder))}; or name another file."
        what = f"cannot be written: the folder {str(folder)!r} does not exist"
        raise FileError(what, where=_printable(Path(path)), hint=hint)


def _stage(target: Path, data: bytes) -> Path:
    """Write the data to a temporary file in the folder of the target, with the mode and the owner of the target.

    The file has no name until it is complete, where the file system can do so: a killed process leaves nothing.
    """
    temporary = target.parent / f".{target.name[:100]}.{secrets.token_hex(6)}.part"
    try:
        handle = os.open(target.parent, _NO_NAME | os.O_WRONLY, 0o600)
        is_named = False
    except (OSError, OverflowError):
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        is_named = True
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            _copy_mode(target, handle)
            os.fsync(handle)
            if not is_named:
                # With a folder's descriptor, which an absolute path does not use, os.link follows the symbolic link.
                os.link(f"/proc/self/fd/{handle}", temporary, src_dir_fd=handle, follow_symlinks=True)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _copy_mode(target: Path, handle: int) -> None:
    """Give a new file the mode and the owner of the file that it replaces, or the default mode."""
    try:
        replaced = target.stat()
    except FileNotFoundError:
        os.fchmod(handle, 0o666 & ~_umask())
        return
    if (replaced.st_uid, replaced.st_gid) != (os.getuid(), os.getgid()):
        with contextlib.suppress(OSError):
            os.fchown(handle, replaced.st_uid, replaced.st_gid)
    os.fchmod(handle, stat.S_IMODE(replaced.st_mode))


def _printable(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)


def decode_json(data: bytes, kind: type[T], *, where: str, expected_format: str) -> T:
    """Decode a JSON document.

    Args:
        data: The document.
        kind: Type of the value.
        where: Name of the file, for errors.
        expected_format: Required value of the key "format", such as "penstock.plan/3".

    Raises:
        InputError: The JSON is malformed, has another format version, unknown keys or values of the wrong type.
    """
    try:
        header = msgspec.json.decode(data, type=_Format)
    except msgspec.ValidationError:
        header = _Format()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"broken JSON: {_json_problem(error, data)}"
        raise InputError(what, where=where, hint="Fix or regenerate the file.") from None
    if header.format != expected_format:
        actual = f"not {header.format!r}" if header.format else "but is missing"
        hint = _format_hint(header.format, expected_format)
        raise InputError(f'the key "format" must be {expected_format!r}, {actual}', where=where, hint=hint)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        at = f"{where}, at {path.strip('`')}" if path else where
        raise InputError(what, where=at, hint="docs/formats.md describes every key.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"broken JSON: {_json_problem(error, data)}"
        raise InputError(what, where=where, hint="Fix or regenerate the file.") from None


def encode_json(value: msgspec.Struct) -> bytes:
    """Encode a value as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def digest(value: msgspec.Struct, *, without: Collection[str] = ()) -> str:
    """Hash the contents of a value: equal values have equal digests, on every machine.

    Args:
        value: The value.
        without: Fields to leave out, such as a later addition that is empty, so that older files keep their digest.
    """
    fields = msgspec.to_builtins(value)
    hashed = {name: item for name, item in fields.items() if name not in without}
    return "sha256:" + hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()[:32]


def line_and_column(data: bytes, offset: int) -> str:
    """Convert a byte offset to `line:column`, both counted from 1."""
    before = data[:offset]
    line_start = before.rfind(b"\n") + 1
    return f"{before.count(bytes([10])) + 1}:{offset - line_start + 1}"


def reason(error: Exception) -> str:
    """Return the text of an operating-system error without its number and path."""
    return getattr(error, "strerror", None) or str(error)


class _Format(msgspec.Struct):
    format: str = ""


COMMANDS = {
    "profile": "penstock profile -o FILE",
    "plan": "penstock plan -o FILE",
    "program": "penstock plan --program FILE",
    "timeline": "penstock simulate -o FILE",
}
"""The command that writes each kind of file."""


def _format_hint(actual: str, expected: str) -> str:
    name, _, _ = expected.partition("/")
    if actual.startswith(name + "/"):
        command = COMMANDS.get(name.removeprefix("penstock."), "")
        how = f" with `{command}`" if command else ""
        return f"The file was written by another version of Penstock: regenerate it{how}."
    if actual.startswith("penstock."):
        return f"This is a {actual.removeprefix('penstock.').partition('/')[0]} file."
    return f"Check that this is a {name.removeprefix('penstock.')} file."


def _json_problem(error: Exception, data: bytes) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error)
    head, separator, tail = text.rpartition("(byte ")
    if separator and tail.rstrip(")").isdigit():
        position = line_and_column(data, int(tail.rstrip(")")))
        return f"{head.strip().removeprefix('JSON is malformed: ')} at line {position.replace(':', ', column ')}"
    return text


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
