"""A damaged checkpoint is never loaded: the last good one is, or the damage is named."""

import random
import shutil
from pathlib import Path

import pytest

from penstock.runtime.state.checkpoints.digests import FileDigest, find_damage
from penstock.runtime.state.checkpoints.record import RECORD
from tests.support.runtime.checkpoint_runs import load_filled, save_filled
from tests.support.runtime.damaged_checkpoints import DAMAGES, GOOD, NEWEST, Damage, take_a_file_of_the_older_one
from tests.support.runtime.rank_pool import RankPool
from tests.support.thoroughness import is_thorough


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
