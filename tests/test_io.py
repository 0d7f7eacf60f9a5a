"""File reads with located errors, and atomic writes."""

import os
import socket
import stat
from pathlib import Path

import msgspec
import pytest

from penstock import io
from penstock.errors import FileError, InputError


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str = "penstock.thing/1"
    count: int
    parts: tuple[float, ...] = ()


def decode(text: str | bytes) -> Thing:
    data = text.encode() if isinstance(text, str) else text
    return io.decode_json(data, Thing, where="x.json", expected_format="penstock.thing/1")


def test_round_trip() -> None:
    thing = Thing(count=2, parts=(1.5, 1e-300))
    data = io.encode_json(thing)
    assert data.endswith(b"}\n")
    assert data.count(b"\n") > 3
    assert decode(data) == thing


@pytest.mark.parametrize(
    ("text", "what", "where", "hint"),
    [
        ("", "broken JSON: Input data was truncated", "x.json", "Fix or regenerate"),
        ('{"format": "penstock.thing/1", "count": }', "at line 1, column 41", "x.json", "Fix or regenerate"),
        ('{\n "a": 1,\n "b" 2}', "at line 3, column 6", "x.json", "Fix or regenerate"),
        ("[1]", 'the key "format" must be', "x.json", "Check that this is a thing file."),
        ('{"count": 1}', "but is missing", "x.json", "Check that this is a thing file."),
        ('{"format": 3}', "but is missing", "x.json", "Check that this is a thing file."),
        ('{"format": "penstock.thing/2"}', "not 'penstock.thing/2'", "x.json", "another version"),
        ('{"format": "penstock.plan/3"}', "not 'penstock.plan/3'", "x.json", "This is a plan file."),
        ('{"format": "penstock.thing/1"}', "missing required field `count`", "x.json", "formats.md"),
        ('{"format": "penstock.thing/1", "count": "2"}', "Expected `int`, got `str`", "x.json, at $.count", "formats"),
        ('{"format": "penstock.thing/1", "count": 1, "parts": [null]}', "Expected `float`", "x.json, at $.parts", ""),
        ('{"format": "penstock.thing/1", "count": 1, "parts": [1e999]}', "out of range", "x.json", ""),
        ('{"format": "penstock.thing/1", "count": 1, "x": 1}', "unknown field `x`", "x.json", "formats.md"),
        (b'{"format": "penstock.thing/1", "count": 1, "x\xff": 1}', "", "x.json", ""),
        ("[" * 100_000, "", "x.json", ""),
        ('{"a":' * 100_000, "nested too deeply", "x.json", "Fix or regenerate"),
    ],
)  # fmt: skip
def test_refused(text: str | bytes, what: str, where: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(text)
    assert what in caught.value.what
    assert caught.value.where.startswith(where)
    assert hint in caught.value.hint


def test_writes_are_atomic(tmp_path: Path) -> None:
    path = tmp_path / "f"
    io.write_whole(path, b"one")
    path.chmod(0o600)
    io.write_whole(str(path), b"two")
    assert io.read_bytes(path) == b"two"
    assert io.read_text(path) == "two"
    assert [item.name for item in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    path.chmod(mode)
    io.write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        io.write_whole(tmp_path / "f", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_killed_writer_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    """While data is written, the file has no name, if the file system has files without one."""
    seen: list[list[str]] = []
    fsync = os.fsync

    def look(handle: int) -> None:
        seen.append([item.name for item in tmp_path.iterdir()])
        fsync(handle)

    monkeypatch.setattr(os, "fsync", look)
    if not unnamed:
        monkeypatch.setattr(io, "_NO_NAME", 1 << 62)
    io.write_whole(tmp_path / "f", b"one")
    assert [len(names) for names in seen] == [0 if unnamed else 1]
    assert [item.name for item in tmp_path.iterdir()] == ["f"]


def test_not_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    io.write_whole(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(FileError, match="No space left on device"):
        io.write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("name", ["no/such/folder/f", ".", "x" * 300, "a\0b", "\ud800"])
def test_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        io.write_whole(f"{tmp_path}/{name}", b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "none", "a\0b", "x" * 5000, "\ud800"])
def test_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError):
        io.read_bytes(tmp_path / name)


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(io.MAX_INPUT_BYTES + 1)
    with pytest.raises(FileError, match="exceeds the limit of 1,073,741,824"):
        io.read_bytes(path)


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ab\nc\xff")
    with pytest.raises(InputError, match="not UTF-8") as caught:
        io.read_text(tmp_path / "f")
    assert caught.value.where == f"{tmp_path / 'f'}:2:2"


def test_line_and_column() -> None:
    assert io.line_and_column(b"ab\ncd\n", 0) == "1:1"
    assert io.line_and_column(b"ab\ncd\n", 4) == "2:2"
    assert io.line_and_column(b"", 0) == "1:1"


def test_digests() -> None:
    assert io.digest(Thing(count=1)) == io.digest(Thing(count=1))
    assert io.digest(Thing(count=1)) != io.digest(Thing(count=2))
    assert io.digest(Thing(count=1)).startswith("sha256:")
    assert len(io.digest(Thing(count=1))) == len("sha256:") + 32


def test_data_reaches_the_disk_before_the_file_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after the rename must not leave an empty file: everything is written when fsync is called."""
    path, synced = tmp_path / "x", []
    fsync = os.fsync

    def record(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            synced.append((os.fstat(handle).st_size, path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record)
    io.write_whole(path, b"abc")
    assert synced == [(3, False)]


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_special_files_are_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "special"
    if kind == "pipe":
        os.mkfifo(path)  # opening it to read waits for a writer
    elif kind == "device":
        path.symlink_to("/dev/zero")  # has no end
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    with pytest.raises(FileError, match=r"device or a pipe|cannot be read"):
        io.read_bytes(path)
