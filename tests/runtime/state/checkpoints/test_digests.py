"""A damaged checkpoint is never loaded: the last good one is, or the damage is named."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.runtime.state.checkpoints.digests import FileDigest, find_damage
from penstock.runtime.state.checkpoints.record import RECORD
from tests.support.runtime.checkpoint_runs import load_filled, save_filled
from tests.support.runtime.rank_pool import RankPool
from tests.support.thoroughness import is_thorough

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


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_last_good_one_is_loaded(rank_pool: RankPool, tmp_path: Path, damage: Damage) -> None:
    saved = tmp_path / "saved"
    rank_pool.run(2, save_filled, str(saved), [2, 3])
    rng = random.Random(5)
    folders, names = [], []
    for number in range(100 if is_thorough() else 12):
        folder = tmp_path / str(number)
        shutil.copytree(saved, folder)
        names.append(damage(folder / NEWEST, rng))
        folders.append(str(folder))
    for outcomes in rank_pool.run(2, load_filled, folders, None):
        for saved_to, name, (outcome, skipped) in zip(folders, names, outcomes, strict=True):
            if (name, damage) == (RECORD, take_a_file_of_the_older_one):
                # The older record has the digests of the older files.
                assert outcome == "step 2"
                continue
            assert outcome == "step 2", (saved_to, name)
            assert len(skipped) == 1
            assert NEWEST in skipped[0]
            assert name in skipped[0], skipped
    for outcomes in rank_pool.run(2, load_filled, folders, 3):
        for outcome, _ in outcomes:
            assert "Error: " in outcome
            assert (
                "penstock.json" in outcome or "the checkpoint is damaged: " in outcome or "no checkpoint of" in outcome
            )


def test_if_all_are_damaged_the_newest_is_named(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run(2, save_filled, str(tmp_path), [2, 3])
    for name in (GOOD, NEWEST):
        flip_a_bit_of(tmp_path / name / "__1_0.distcp")
    [[(outcome, _)], [(same, _)]] = rank_pool.run(2, load_filled, [str(tmp_path)], None)
    assert outcome == same
    assert outcome == (
        f"FileError: {tmp_path / NEWEST}: the checkpoint is damaged: __1_0.distcp does not have the contents that were "
        "written\n  The directory has no other checkpoint."
    )


def flip_a_bit_of(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_damage_of_plain_files(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"abc")
    (tmp_path / "none").write_bytes(b"")
    abc = FileDigest(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    empty = FileDigest(0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert find_damage(tmp_path, {"one": abc, "none": empty}) == ""
    assert find_damage(tmp_path, {"none": abc}) == "none has 0 bytes; 3 were written"
    assert find_damage(tmp_path, {"two": abc}) == "two is missing"
    other = FileDigest(3, empty.sha256)
    assert find_damage(tmp_path, {"one": other}) == "one does not have the contents that were written"
