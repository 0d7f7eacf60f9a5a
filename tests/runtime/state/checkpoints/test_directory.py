"""A directory of checkpoints: which ones are kept, which errors are raised, and its state after a writer is killed."""

import random
from pathlib import Path

import pytest
import torch

from penstock.errors import InputError
from penstock.runtime.state.checkpoints.directory import Lock, begin, choose, find_checkpoints, locked
from tests.support.runtime.checkpoint_runs import Run as Training
from tests.support.runtime.checkpoint_runs import (
    come_late,
    load_step,
    save_steps,
    train,
    try_load,
    try_save,
)
from tests.support.runtime.killed_writers import kill_writers
from tests.support.runtime.models import KINDS
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

CUT = plan_of([0, 3, 7], [["d0"], ["d1"]])


@pytest.mark.parametrize(
    ("steps", "keep", "names", "newest"),
    [
        ([1, 2, 3], 2, ["step-00000002", "step-00000003"], 3),
        ([1, 2, 3], None, ["step-00000001", "step-00000002", "step-00000003"], 3),
        ([1, 2, 3], 1, ["step-00000003"], 3),
        # After a return to an older step, the last written checkpoint counts.
        ([5, 6, 3], 2, ["step-00000003", "step-00000006"], 3),
        ([4, 4], 2, ["step-00000004-2"], 4),
        ([4, 4, 4], 2, ["step-00000004"], 4),
        ([123456789], 2, ["step-123456789"], 123456789),
    ],
)
def test_checkpoints_that_are_kept(
    rank_pool: RankPool, tmp_path: Path, steps: list[int], keep: int | None, names: list[str], newest: int
) -> None:
    assert rank_pool.run(2, save_steps, str(tmp_path / "a" / "b"), steps, keep) == [names] * 2
    assert rank_pool.run(2, load_step, str(tmp_path / "a" / "b"), None) == [newest] * 2


def test_load_of_a_given_step(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run(2, save_steps, str(tmp_path), [1, 2, 3], None)
    assert rank_pool.run(2, load_step, str(tmp_path), 2) == [2, 2]
    with pytest.raises(InputError, match=r"no checkpoint of step 7\n  Available steps: 1, 2, 3\."):
        choose(tmp_path, 7)


def common(message: list[str]) -> str:
    """The message that all ranks have in common."""
    assert len(set(message)) == 1, message
    return message[0]


def test_all_ranks_raise_the_same_error(rank_pool: RankPool, tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    assert common(rank_pool.run(2, try_save, ["momentum"], [folder] * 2)) == "step-00000000"
    assert common(rank_pool.run(2, try_load, "mlp", ["momentum"], folder)) == "step 0"
    assert common(rank_pool.run(2, try_load, "mlp", [], folder, False)) == "step 0"
    message = common(rank_pool.run(2, try_load, "mlp", ["adamw"], folder))
    assert message.startswith(
        "MismatchError: the checkpoint has the state of SGD, but the pipeline has AdamW\n  Create the"
    )
    message = common(rank_pool.run(2, try_load, "mlp", [], folder))
    assert message.startswith("MismatchError: the checkpoint has the state of SGD, but the pipeline has no optimizer\n")
    message = common(rank_pool.run(2, try_load, "vgg", ["momentum"], folder, False))
    assert "step-00000000: the checkpoint is of another model: '0.weight' has shape (64, 8) and" in message
    assert "type torch.float32, but (6, 3, 3, 3) and torch.float32 in the model\n" in message
    message = common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path)))
    assert message.startswith(f"FileError: {tmp_path}: the directory has no complete checkpoint\n")
    message = common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path / "nowhere")))
    assert "no such checkpoint directory" in message


def test_names_that_only_one_side_has(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run(2, try_save, [], [str(tmp_path)] * 2)
    message = common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path)))
    assert message == "step 0"
    message = common(rank_pool.run(2, try_load, "resnet", [], str(tmp_path)))
    assert "another model: '0.weight' has shape (64, 8)" in message
    message = common(rank_pool.run(2, try_load, "gpt", [], str(tmp_path)))
    assert "another model: it lacks '0.places' of the model" in message


def test_saving_that_is_refused(rank_pool: RankPool, tmp_path: Path) -> None:
    message = common(rank_pool.run(2, try_save, ["adamw", "plain"], [str(tmp_path)] * 2))
    assert message.startswith("InputError: parameter '0.weight' is in two optimizers or in two groups\n")
    message = common(rank_pool.run(2, try_save, ["adamw"], [str(tmp_path)] * 2, True))
    assert message.startswith("MismatchError: optimizer option 'lr' is 0.1 for '0.weight', but 0.2 for '4.weight' on")
    message = common(rank_pool.run(2, try_save, [], [str(tmp_path / "one"), str(tmp_path / "two")]))
    assert "rank 1 cannot access the checkpoint of rank 0" in message
    message = common(rank_pool.run(2, try_save, [], [str(tmp_path)] * 2, False, None, "a function"))
    assert message.startswith(f"InputError: {tmp_path}: rank 0 cannot write: ")
    assert "must be picklable" in message
    with locked(tmp_path) as lock:
        assert lock is Lock.HELD
        message = common(rank_pool.run(2, try_save, [], [str(tmp_path)] * 2))
        assert "another process is writing a checkpoint to this directory" in message
    assert find_checkpoints(tmp_path) == []


@pytest.mark.parametrize("limit", [0, 100, 1000, 3000, 9000])
def test_a_disk_that_is_full_on_one_rank(rank_pool: RankPool, tmp_path: Path, limit: int) -> None:
    rank_pool.run(2, try_save, ["adamw"], [str(tmp_path)] * 2)
    message = common(rank_pool.run(2, try_save, ["adamw"], [str(tmp_path)] * 2, False, limit))
    expected = "rank 1 cannot write: File too large\n  Earlier checkpoints are intact."
    assert message == f"FileError: {tmp_path}: {expected}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000000"]
    assert common(rank_pool.run(2, try_load, "mlp", ["adamw"], str(tmp_path))) == "step 0"


def test_a_damaged_checkpoint_is_refused_and_changes_nothing(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run(2, try_save, [], [str(tmp_path)] * 2)
    [found] = find_checkpoints(tmp_path)
    data = found.path / "__1_0.distcp"
    data.write_bytes(data.read_bytes()[:200])
    message = common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path)))
    assert f"{found.path}: the checkpoint is damaged: __1_0.distcp has 200 bytes; " in message
    (found.path / "penstock.json").unlink()
    message = common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path)))
    assert f"{found.path}: the directory has the name of a checkpoint, but no penstock.json" in message


def test_unfinished_checkpoints_of_a_living_writer_stay(rank_pool: RankPool, tmp_path: Path) -> None:
    rank_pool.run(2, try_save, [], [str(tmp_path)] * 2)
    unfinished = begin(tmp_path, 9)
    with locked(tmp_path):
        assert common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path))) == "step 0"
        assert unfinished.is_dir()
    assert common(rank_pool.run(2, try_load, "mlp", [], str(tmp_path))) == "step 0"
    assert not unfinished.exists()


def test_a_complete_save_leaves_nothing_unfinished(rank_pool: RankPool, tmp_path: Path) -> None:
    """What a killed writer left behind is removed by the next save, not only by the next load."""
    abandoned = [begin(tmp_path, 9), begin(tmp_path, 9), begin(tmp_path, 12)]
    (abandoned[0] / "__0_0.distcp").write_bytes(b"half of a file")
    assert common(rank_pool.run(2, try_save, ["adamw"], [str(tmp_path)] * 2)) == "step-00000000"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000000"]
    begin(tmp_path, 1)
    rank_pool.run(2, save_steps, str(tmp_path), [1, 2, 3], 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000002", "step-00000003"]


@pytest.mark.parametrize(
    ("saved", "loaded", "numbers"),
    [("momentum", "momentum groups", r"(1) must equal that of the optimizers (2)"),
     ("momentum groups", "momentum", r"(2) must equal that of the optimizers (1)")],
)  # fmt: skip
def test_another_number_of_parameter_groups(
    rank_pool: RankPool, tmp_path: Path, saved: str, loaded: str, numbers: str
) -> None:
    rank_pool.run(2, try_save, [saved], [str(tmp_path)] * 2)
    message = common(rank_pool.run(2, try_load, "mlp", [loaded], str(tmp_path)))
    assert message.startswith(f"MismatchError: number of parameter groups in the checkpoint {numbers}\n")
    assert common(rank_pool.run(2, try_load, "mlp", [saved], str(tmp_path))) == "step 0"
    assert common(rank_pool.run(2, try_load, "mlp", [loaded], str(tmp_path), False)) == "step 0"


def test_a_rank_that_does_not_save(rank_pool: RankPool, tmp_path: Path) -> None:
    (ok, message), (also_ok, _) = rank_pool.outcomes(2, come_late, str(tmp_path))
    assert not ok
    assert not also_ok
    assert message[0] == "RuntimeTimeout"
    assert message[1].startswith("rank 0, starting a checkpoint (with rank 1): timed out after 1 s")
    assert find_checkpoints(tmp_path) == []


def test_killed_at_any_moment_the_last_complete_one_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for number, left in enumerate(kill_writers(folder, 20, random.Random(4)), 1):
        if number >= 6 and left and find_checkpoints(folder):
            break
    assert find_checkpoints(folder)
    assert left, "no writer was killed while writing"


def test_a_checkpoint_before_the_first_step(rank_pool: RankPool, tmp_path: Path) -> None:
    plans = CUT, plan_of([0, 7], [["d0"]])
    rank_pool.run(2, train, Training("mlp", plans[0], "adamw", 0, str(tmp_path), save=True))
    [single] = rank_pool.run(1, train, Training("mlp", plans[1], "adamw", 2, str(tmp_path), load=True))
    expected = train(Training("mlp", None, "adamw", 2))
    assert all(map(torch.equal, single.losses, expected.losses))
    assert KINDS["mlp"].model().state_dict().keys() == single.parameters.keys()
