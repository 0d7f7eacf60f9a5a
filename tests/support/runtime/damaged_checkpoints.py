"""Damages of a checkpoint on disk."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.runtime.state.checkpoints.record import RECORD

GOOD, NEWEST = "step-00000002", "step-00000003"
Damage = Callable[[Path, random.Random], str]
"""Damages a checkpoint, and returns the name of a damaged file, or what the names of several have in common."""


def draw_file(path: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(path.iterdir()))


def flip_a_bit(path: Path, rng: random.Random) -> str:
    file = draw_file(path, rng)
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return file.name


def truncate(path: Path, rng: random.Random) -> str:
    file = draw_file(path, rng)
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])
    return file.name


def append_a_byte(path: Path, rng: random.Random) -> str:
    file = draw_file(path, rng)
    file.write_bytes(file.read_bytes() + b"\0")
    return file.name


def zero_a_part(path: Path, rng: random.Random) -> str:
    """As after a crash of a file system that writes sizes before contents."""
    file = draw_file(path, rng)
    data = file.read_bytes()
    start = rng.randrange(len(data) // 2)
    file.write_bytes(data[:start] + bytes(len(data) - start))
    return file.name


def remove_a_file(path: Path, rng: random.Random) -> str:
    file = draw_file(path, rng)
    file.unlink()
    return file.name


def take_a_file_of_the_older_one(path: Path, rng: random.Random) -> str:
    file = draw_file(path, rng)
    shutil.copyfile(path.parent / GOOD / file.name, file)
    return file.name


def swap_the_files_of_two_ranks(path: Path, _rng: random.Random) -> str:
    one, other = path / "__0_0.distcp", path / "__1_0.distcp"
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    return ".distcp"


def empty_the_folder(path: Path, _rng: random.Random) -> str:
    for file in path.iterdir():
        file.unlink()
    return RECORD


def make_a_file_a_folder(path: Path, rng: random.Random) -> str:
    file = draw_file(path, rng)
    file.unlink()
    file.mkdir()
    return file.name


DAMAGES: list[Damage] = [
    flip_a_bit,
    truncate,
    append_a_byte,
    zero_a_part,
    remove_a_file,
    take_a_file_of_the_older_one,
    swap_the_files_of_two_ranks,
    empty_the_folder,
    make_a_file_a_folder,
]
