"""A folder of checkpoints: what stays, what is refused, and what is left when writers are killed."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from penstock.errors import InputError
from penstock.runtime.state.checkpoint_dir import Lock, begin, choose, find_checkpoints, locked
from penstock.runtime.state.checkpoint_io import Stored
from tests.support.runtime.checkpoint_runs import Run as Training
from tests.support.runtime.checkpoint_runs import (
    come_late,
    load_step,
    save_for_ever,
    save_steps,
    steps_alone,
    train,
    try_load,
    try_save,
)
from tests.support.runtime.forkserver import warm_context
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import plan_of
from tests.support.runtime.world import World

torch.set_num_threads(1)

CUT = plan_of([0, 3, 7], [["d0"], ["d1"]])


@pytest.mark.parametrize(
    ("steps", "keep", "there", "newest"),
    [
        ([1, 2, 3], 2, ["step-00000002", "step-00000003"], 3),
        ([1, 2, 3], None, ["step-00000001", "step-00000002", "step-00000003"], 3),
        ([1, 2, 3], 1, ["step-00000003"], 3),
        # Whoever went back to an older one goes on from what was written last.
        ([5, 6, 3], 2, ["step-00000003", "step-00000006"], 3),
        ([4, 4], 2, ["step-00000004-2"], 4),
        ([4, 4, 4], 2, ["step-00000004"], 4),
        ([123456789], 2, ["step-123456789"], 123456789),
    ],
)
def test_what_stays(
    world: World, tmp_path: Path, steps: list[int], keep: int | None, there: list[str], newest: int
) -> None:
    assert world.run(2, save_steps, str(tmp_path / "a" / "b"), steps, keep) == [there] * 2
    assert world.run(2, load_step, str(tmp_path / "a" / "b"), None) == [newest] * 2


def test_a_step_that_is_asked_for(world: World, tmp_path: Path) -> None:
    world.run(2, save_steps, str(tmp_path), [1, 2, 3], None)
    assert world.run(2, load_step, str(tmp_path), 2) == [2, 2]
    with pytest.raises(InputError, match=r"there is no checkpoint of step 7\n  There are: 1, 2, 3\."):
        choose(tmp_path, 7)


def alike(told: list[str]) -> str:
    """What all ranks say alike."""
    assert len(set(told)) == 1, told
    return told[0]


def test_what_is_refused_is_refused_by_all_alike(world: World, tmp_path: Path) -> None:
    folder = str(tmp_path / "saved")
    assert alike(world.run(2, try_save, ["momentum"], [folder] * 2)) == "step-00000000"
    assert alike(world.run(2, try_load, "mlp", ["momentum"], folder)) == "step 0"
    assert alike(world.run(2, try_load, "mlp", [], folder, False)) == "step 0"
    told = alike(world.run(2, try_load, "mlp", ["adamw"], folder))
    assert told.startswith("MismatchError: the checkpoint has the state of SGD, but the pipeline has AdamW\n  Make the")
    told = alike(world.run(2, try_load, "mlp", [], folder))
    assert told.startswith("MismatchError: the checkpoint has the state of SGD, but the pipeline has no optimizer\n")
    told = alike(world.run(2, try_load, "vgg", ["momentum"], folder, False))
    assert "step-00000000: the checkpoint is one of another model: '0.weight' has the shape (64, 8) and" in told
    assert "in it, but (6, 3, 3, 3) and torch.float32 in the model\n" in told
    told = alike(world.run(2, try_load, "mlp", [], str(tmp_path)))
    assert told.startswith(f"FileError: {tmp_path}: there is no complete checkpoint in this folder\n")
    told = alike(world.run(2, try_load, "mlp", [], str(tmp_path / "nowhere")))
    assert "there is no such folder of checkpoints" in told


def test_names_that_only_one_side_has(world: World, tmp_path: Path) -> None:
    world.run(2, try_save, [], [str(tmp_path)] * 2)
    told = alike(world.run(2, try_load, "mlp", [], str(tmp_path)))
    assert told == "step 0"
    told = alike(world.run(2, try_load, "resnet", [], str(tmp_path)))
    assert "another model: '0.weight' has the shape (64, 8)" in told
    told = alike(world.run(2, try_load, "gpt", [], str(tmp_path)))
    assert "another model: the model has '0.places', which is not in it" in told


def test_saving_that_is_refused(world: World, tmp_path: Path) -> None:
    told = alike(world.run(2, try_save, ["adamw", "plain"], [str(tmp_path)] * 2))
    assert told.startswith("InputError: the parameter '0.weight' is in two optimizers, or in two groups\n")
    told = alike(world.run(2, try_save, ["adamw"], [str(tmp_path)] * 2, True))
    assert told.startswith("MismatchError: the option 'lr' of the optimizer is 0.1 for '0.weight', but 0.2 on another")
    told = alike(world.run(2, try_save, [], [str(tmp_path / "one"), str(tmp_path / "two")]))
    assert "rank 1 does not see what rank 0 has put there" in told
    told = alike(world.run(2, try_save, [], [str(tmp_path)] * 2, False, False, "a function"))
    assert told.startswith(f"InputError: {tmp_path}: rank 0 cannot write: ")
    assert "must be something that pickle can write" in told
    with locked(tmp_path) as lock:
        assert lock is Lock.HELD
        told = alike(world.run(2, try_save, [], [str(tmp_path)] * 2))
        assert "another process is writing a checkpoint into this folder" in told
    assert find_checkpoints(tmp_path) == []


def test_a_disk_that_is_full_on_one_rank(world: World, tmp_path: Path) -> None:
    world.run(2, try_save, ["adamw"], [str(tmp_path)] * 2)
    told = alike(world.run(2, try_save, ["adamw"], [str(tmp_path)] * 2, False, True))
    assert told == f"FileError: {tmp_path}: rank 1 cannot write: File too large"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "step-00000000"]
    assert alike(world.run(2, try_load, "mlp", ["adamw"], str(tmp_path))) == "step 0"


def test_a_damaged_checkpoint_is_refused_and_changes_nothing(world: World, tmp_path: Path) -> None:
    world.run(2, try_save, [], [str(tmp_path)] * 2)
    [found] = find_checkpoints(tmp_path)
    data = found.path / "__1_0.distcp"
    data.write_bytes(data.read_bytes()[:200])
    told = alike(world.run(2, try_load, "mlp", [], str(tmp_path)))
    assert f"{found.path}: the checkpoint cannot be read: " in told
    (found.path / "penstock.json").unlink()
    told = alike(world.run(2, try_load, "mlp", [], str(tmp_path)))
    assert f"{found.path}: this is named as a checkpoint but is none, or not all of one" in told


def test_what_a_living_writer_has_begun_stays(world: World, tmp_path: Path) -> None:
    world.run(2, try_save, [], [str(tmp_path)] * 2)
    begun = begin(tmp_path, 9)
    with locked(tmp_path):
        assert alike(world.run(2, try_load, "mlp", [], str(tmp_path))) == "step 0"
        assert begun.is_dir()
    assert alike(world.run(2, try_load, "mlp", [], str(tmp_path))) == "step 0"
    assert not begun.exists()


@pytest.fixture
def spoilt() -> Iterator[World]:
    made = World(2)
    yield made
    made.close()


def test_a_rank_that_does_not_come_to_save(spoilt: World, tmp_path: Path) -> None:
    spoilt.start(2, come_late, str(tmp_path))
    (well, told), (also_well, _) = spoilt.outcomes(2)
    assert not well
    assert not also_well
    assert told[0] == "RuntimeTimeout"
    assert told[1].startswith("rank 0, begins a checkpoint (with rank 1): nothing came of it within 1 s")
    assert find_checkpoints(tmp_path) == []


def test_killed_at_any_moment_the_last_complete_one_is_there(tmp_path: Path) -> None:
    expected = steps_alone(8)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    context = warm_context()
    moments = random.Random(4)
    left, longest_s = 0, 0.4
    for number in range(20):
        if number >= 6 and left and find_checkpoints(folder):
            break
        meeting = str(tmp_path / f"meeting{number}")
        ranks = [context.Process(target=save_for_ever, args=(str(folder), meeting, r, expected)) for r in range(2)]
        for process in ranks:
            process.start()
        deadline = time.monotonic() + 60
        while not all(Path(f"{meeting}.{rank}.begun").exists() for rank in range(2)):
            assert time.monotonic() < deadline
            assert all(process.is_alive() for process in ranks), "what was loaded was not what was saved"
            time.sleep(0.002)
        time.sleep(moments.uniform(0.02, longest_s))
        for process in ranks:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        for process in ranks:
            process.join(20)
            assert process.exitcode == -signal.SIGKILL
        left += sum(path.name.endswith(".part") for path in folder.iterdir())
        if found := find_checkpoints(folder):
            newest = choose(folder, None)
            assert newest == found[-1]
            saved = Stored(newest.path).read(lambda path: path[0] == "model")["model"]
            assert all(torch.equal(saved[name], item) for name, item in expected[newest.record.step].items())
        else:
            # A busy machine takes longer to complete one.
            longest_s = min(2 * longest_s, 10.0)
    assert find_checkpoints(folder)
    assert left, "no writer was killed while it wrote"


def test_a_checkpoint_of_a_pipeline_that_has_not_begun(world: World, tmp_path: Path) -> None:
    plans = CUT, plan_of([0, 7], [["d0"]])
    world.run(2, train, Training("mlp", plans[0], "adamw", 0, str(tmp_path), save=True))
    [alone] = world.run(1, train, Training("mlp", plans[1], "adamw", 2, str(tmp_path), load=True))
    wanted = train(Training("mlp", None, "adamw", 2))
    assert all(map(torch.equal, alone.losses, wanted.losses))
    assert KINDS["mlp"].model().state_dict().keys() == alone.parameters.keys()
